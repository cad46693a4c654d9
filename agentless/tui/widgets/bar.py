"""The two lines on top: the views, and the numbers of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content
from textual.widgets import Static

from agentless.client.words import WAITING
from agentless.tui.data.cluster import ClusterState, count
from agentless.tui.widgets.lines import content

_NAME = "agentless  "
_SHORT = 4
"""Letters of a view's name where not all names fit."""


class Bar(Static):
    """The names of the views; a click shows one."""

    DEFAULT_CSS = "Bar { height: 1; background: $panel; link-style: none; link-color: $text; link-background: $panel; }"

    def __init__(self, views: Mapping[str, str]) -> None:
        super().__init__()
        self._views = views
        self._shown = next(iter(views))

    def on_mount(self) -> None:
        self.show(self._shown)

    def on_resize(self) -> None:
        """Leave out the name and the gaps on a narrow screen."""
        self.show(self._shown)

    def show(self, name: str) -> None:
        """Mark a view as the current one."""
        self._shown = name
        width = self.size.width
        padded = sum(len(f" {at} {title} ") for at, title in enumerate(self._views.values(), 1))
        pad = " " if width >= padded else ""
        parts = [f"[b]{_NAME}[/b]"] if width >= padded + len(_NAME) else []
        for at, (each, title) in enumerate(self._views.items(), 1):
            style = "reverse" if each == name else ""
            whole = each == name or width >= padded - len(self._views)
            parts.append(f"[{style} @click=app.view('{each}')]{pad}{at} {title if whole else title[:_SHORT]}{pad}[/]")
        self.update(Content.from_markup(("" if pad else " ").join(parts)))


class Summary(Static):
    """The problems, the numbers of tasks and of free GPUs: first what must not be cut."""

    DEFAULT_CSS = "Summary { height: 1; }"

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(markup=False)
        self._cluster = cluster

    def update(self, *_: object) -> None:  # type: ignore[override]
        words = self._words("GPUs ")
        super().update(words if words.cell_length <= self.size.width else self._words(""))

    def _words(self, noun: str) -> Content:
        if gone := self._cluster.gone:
            more = "; press S to start it" if self._cluster.stopped else ""
            return content((f" {gone}{more} ", "$text-error reverse"))
        rows, tasks = self._cluster.gpus.values(), self._cluster.tasks.values()
        divided = {gpu.get("parent") for gpu in rows}  # their slices count, not they
        gpus = [gpu for gpu in rows if gpu["state"] != "partitioned" and gpu["uuid"] not in divided]
        parts: list[str | tuple[str, str]] = [" "]
        if self.app.read_only:  # type: ignore[attr-defined]
            parts += [("read only", "dim"), " │ "]
        if problems := len(self._cluster.problems()):
            parts += [(f"! {problems} problem{'s' * (problems != 1)}", "$text-error bold"), " │ "]
        runs, waits = count(tasks, "running", "assigning", "paused"), count(tasks, *WAITING)
        parts += [(f"{runs} running", "$text-success"), " ", (f"{waits} pending", "$text-warning" if waits else "")]
        free, foreign = count(gpus, "free"), count(gpus, "foreign")
        parts += [" │ ", (f"{free}/{len(gpus)} {noun}free", "$text-success")]
        parts += [" ", (f"{foreign} foreign", "$text-accent")] if foreign else []
        out = len(gpus) - free - foreign - count(gpus, "allocated")
        parts += [" ", (f"{out} out", "$text-warning")] if out else []
        return content(*parts)
