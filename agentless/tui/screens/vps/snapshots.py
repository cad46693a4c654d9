"""The snapshots of a VPS: list, make, restore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.words import date
from agentless.errors import AgentlessError
from agentless.model.units import format_size
from agentless.tui.data.actions import outcome, path_of_vps, started
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.screens.ask import Ask
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.lines import content
from agentless.tui.widgets.table import Table, TableColumn

_COLUMNS = (
    TableColumn("SNAPSHOT", lambda each: each["snapshot"]),
    TableColumn("MADE", lambda each: date(each["at"])),
    TableColumn("SIZE", lambda each: format_size(each["size_bytes"]), right=True),
    TableColumn("BY", lambda each: each["by"], rank=1),
    TableColumn("NODES", lambda each: " ".join(each["nodes"]), rank=2),
    TableColumn("MESSAGE", lambda each: each["message"], flexible=True),
)


class Snapshots(Screen[None]):
    """The snapshots of one VPS, the newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
        Binding("n", "make", "New", tooltip="save the files of the VPS as a new snapshot"),
        Binding("enter", "restore", "Restore", priority=True, tooltip="put the VPS back to this snapshot"),
    ]
    CSS = """
    Snapshots > .title { background: $panel; height: 1; }
    Snapshots > Table { height: 1fr; }
    Snapshots > .note { height: auto; max-height: 4; color: $text-muted; }
    """

    def __init__(self, cluster: ClusterState, client: Client, vps: Row) -> None:
        super().__init__()
        self._cluster, self._client, self._row = cluster, client, vps
        self._table = Table(_COLUMNS, lambda each: each["snapshot"])
        self._note = Static("Loading …", markup=False, classes="note")
        self._breaker = Breaker()

    @property
    def about_task(self) -> Row:
        """The VPS in its present state."""
        return self._cluster.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> None:
        """None: what is shown, and acted on, is the VPS."""

    def compose(self) -> ComposeResult:
        yield Static(content(f"Snapshots of VPS {self._row['name']}"), classes="title")
        yield self._table
        yield self._note
        yield KeyLine()

    def on_mount(self) -> None:
        self.set_focus(self._table.body)
        self._do(lambda: "")

    def on_unmount(self) -> None:
        self._breaker.break_off()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A read-only dashboard only lists them."""
        del parameters
        return not (action in ("make", "restore") and self.app.read_only)  # type: ignore[attr-defined]

    def on_table_opened(self, event: Table.Opened) -> None:
        """A double click is what Enter is."""
        event.stop()
        if self.check_action("restore", ()):
            self.action_restore()

    def action_make(self) -> None:
        question = Ask(
            f"Make a snapshot of VPS {self._row['name']}?",
            effect="Saves its files, without mounted folders and volumes. A VPS that runs is paused for a moment.",
            verb="Make",
            text="Message (optional)",
        )
        self.app.push_screen(question, self._make)

    def action_restore(self) -> None:
        """Ask first: what was changed since then is lost."""
        if chosen := self._table.chosen:
            question = Ask(
                f"Restore VPS {self._row['name']} to {chosen['snapshot']}?",
                [f"made {date(chosen['at'])} by {chosen['by']}", chosen["message"]],
                effect="Programs that run in it end, and all that was changed in its files since is lost.",
                verb="Restore",
            )
            self.app.push_screen(question, lambda answer: self._restore(chosen, answer))

    # ------------------------------------------------------------------ inside

    def _make(self, message: str | None) -> None:
        if message is not None:
            self._note.update("Making a snapshot …")
            self._do(lambda: f"{self._post('/snapshots', {'message': message})['snapshot']} made")

    def _restore(self, snapshot: Row, answer: str | None) -> None:
        if answer is not None:
            name = snapshot["snapshot"]
            self._note.update(f"Restoring {name} …")
            self._do(lambda: outcome(self._restored(name)))

    def _restored(self, name: str) -> Row:
        """Restore this snapshot; the VPS is another task then."""
        self._row = started(self._post("/restore", {"snapshot": name}))
        return self._row

    def _post(self, path: str, body: Row) -> Any:
        return self._client.post(path_of_vps(self._row) + path, body)

    def _do(self, work: Callable[[], str]) -> None:
        """Work in a thread, then list the snapshots as they are."""

        def run() -> None:
            said, found = "", None
            try:
                with self._breaker.watching():
                    said = work()
                    found = self._client.get(f"{path_of_vps(self._row)}/snapshots")
            except BrokenOff:
                return
            except AgentlessError as error:
                said = str(error)
            in_app(self.app, self._show, said, found)

        self.run_worker(run, thread=True)

    def _show(self, said: str, found: list[Row] | None) -> None:
        if not self.is_mounted:
            return
        if found is not None:
            self._table.show(sorted(found, key=lambda each: each["at"], reverse=True))
        self._note.update(content(said or ("" if self._table.rows else "No snapshots; press n to make one")))
