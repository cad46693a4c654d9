"""All envs: their versions, and where these are; the chosen one is pushed to nodes, or gets a shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from agentless.client.words import date
from agentless.model.text import enumerated, printable
from agentless.model.units import counted, format_size
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.screens import shell
from agentless.tui.screens.ask import Ask
from agentless.tui.screens.reports.base import Report
from agentless.tui.widgets.lines import Piece, fitted


class EnvReport(Report):
    """The envs, each with its versions; one of them is chosen."""

    NAME = "envs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "choose(1)", "Next env", show=False, priority=True),
        Binding("up,k", "choose(-1)", "Previous env", show=False, priority=True),
        Binding("s", "shell", "Shell", tooltip="open a shell in the build container of the env"),
        Binding("C", "push", "Push", tooltip="copy the env to nodes"),
    ]

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(cluster)
        self._chosen = ""
        self._pushes: dict[str, str] = {}  # how far they are, by the name of the env

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without an env there is nothing to act on; a read-only dashboard does not."""
        del parameters
        return action not in ("shell", "push") or bool(self._chosen and not self.app.read_only)  # type: ignore[attr-defined]

    def action_choose(self, by: int) -> None:
        """Choose the next env, and bring it into view."""
        names = [env["name"] for env in self._found] if isinstance(self._found, list) else []
        if names:
            self._chosen = names[max(0, min(names.index(self._chosen) + by, len(names) - 1))]
            self.show()
            at = next(at for at, line in enumerate(self.body.lines) if line and line[0][1].endswith("chosen"))
            top, height = self.body.scroll_offset.y, self.body.size.height
            if not top <= at < top + height - 3:
                self.body.scroll_to(y=max(0, at - height // 3), animate=False, force=True)

    def action_shell(self) -> None:
        app: Any = self.app
        if isinstance(self._found, list):
            app.open_shell(shell.of_env(app.client, self._chosen))

    def action_push(self) -> None:
        """Ask to which nodes."""
        if not isinstance(self._found, list):
            return
        env = next(env for env in self._found if env["name"] == self._chosen)
        there = {node for version in env["versions"] if version["current"] for node in version["nodes"]}
        lacking = [node["name"] for node in self.cluster.ordered_nodes() if node["name"] not in there]
        question = Ask(
            f"Push env {self._chosen} to nodes?",
            [f"version {env['version']} is on {enumerated(sorted(there)) or 'no node'}"],
            effect="Sends only the layers that a node lacks.",
            verb="Push",
            text="Nodes, separated by blanks; empty: all nodes",
            given=lacking[0] if len(lacking) == 1 else "",
        )
        self.app.push_screen(question, partial(self._push, self._chosen))

    def fetch(self) -> Any:
        return self.get("/v1/envs")

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        names = [env["name"] for env in found]
        if self._chosen not in names:
            self._chosen = names[0] if names else ""
            self.refresh_bindings()
        if not found:
            return [
                [("No envs. An env is an image that you build on a node and send to the others:", "dim")],
                [("agentless env create NAME --from python:3.12", "")],
            ]
        return [line for env in found for line in self._lines_of(env, width)]

    # ------------------------------------------------------------------ inside

    def _lines_of(self, env: Row, width: int) -> Iterator[list[Piece]]:
        state = f"build container on {env['node']}: {env['state']}" if env["node"] else ""
        current = f"version {env['version']}" if env["version"] else "no version yet"
        chosen = " chosen" if env["name"] == self._chosen else ""
        yield [
            (printable(env["name"]), f"strong{chosen}"), (f"  {current}  ", "held"),
            (self._pushes.get(env["name"]) or state, "dim"),
        ]  # fmt: skip
        for version in sorted(env["versions"], key=lambda each: each["version"], reverse=True):
            mark = "▸" if version["current"] else " "
            head = f"  {mark} {version['version']:>3}  {format_size(version['size_bytes']):>9}  {date(version['at'])}  "
            where = f"on {enumerated(version['nodes'])}" if version["nodes"] else "on no node that answers"
            message = f"  {version['by']}: {version['message']}" if version["message"] else f"  {version['by']}"
            yield [
                (head, "good" if version["current"] else ""),
                (fitted(where + message, max(0, width - len(head))), "dim"),
            ]
        yield []

    def _push(self, name: str, nodes: str | None) -> None:
        if nodes is not None:
            self._tell(name, "Pushing …")
            self.app.do(partial(self._send, self.app, name, nodes.split()))  # type: ignore[attr-defined]

    def _send(self, app: Any, name: str, nodes: list[str]) -> None:
        """Send it, in a thread of the app: it goes on after this screen was left."""
        try:
            for line in app.client.progress(f"/v1/envs/{name}/push", {"nodes": nodes}):
                if line["kind"] == "progress":
                    size = f" {format_size(line['done'])}" if line["done"] else ""
                    in_app(app, self._tell, name, f"{line['node']}: {line['step']}{size}")
                elif line["kind"] == "done":
                    in_app(app, partial(app.notify, printable(_outcome(name, line["nodes"])), markup=False))
        finally:
            in_app(app, self._end, name)

    def _end(self, name: str) -> None:
        self._tell(name, "")
        if self.is_attached:
            self.ask()

    def _tell(self, name: str, words: str) -> None:
        self._pushes[name] = words
        self.show()


def _outcome(name: str, nodes: list[Row]) -> str:
    """On how many nodes an env is after a push, and why not on the others."""
    wrong = [f"{row['node']}: {row['error']}" for row in nodes if row["error"]]
    return "; ".join([f"{name} is on {len(nodes) - len(wrong)} of {counted(len(nodes), 'node')}", *wrong])
