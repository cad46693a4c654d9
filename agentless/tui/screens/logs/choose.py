"""Chooses the task whose log is shown beside another one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from agentless.client.words import WAITING
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.tasks import Tasks
from agentless.tui.screens.view import FilterLine
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.table import Table


class LogTasks(Tasks):
    """The tasks that have a log, but that whose log is open."""

    SEEN_BY: ClassVar[str] = ""
    EMPTY = ("No other task has a log",)

    def __init__(self, cluster: ClusterState, open_: str) -> None:
        super().__init__(cluster, id="with-logs")
        self._open = open_

    def all_rows(self) -> list[Row]:
        return [row for row in super().all_rows() if row["state"] not in WAITING and row["id"] != self._open]


class ChooseTask(ModalScreen[Row | None]):
    """Returns the chosen task; None if none was chosen. `open_` is the task whose log is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Choose", tooltip="show the log of the selected task", priority=True),
        Binding("escape,q", "dismiss", "Cancel", tooltip="show no second log"),
    ]
    CSS = """
    ChooseTask { align: center middle; }
    ChooseTask > Vertical { width: 90%; height: 80%; border: round $primary; background: $surface; padding: 0 1; }
    ChooseTask Static.question { height: auto; text-style: bold; }
    ChooseTask LogTasks { height: 1fr; }
    """

    def __init__(self, cluster: ClusterState, open_: str) -> None:
        super().__init__()
        self._tasks = LogTasks(cluster, open_)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("Which log beside this one? Enter chooses, / filters, Esc cancels", classes="question")
            yield self._tasks
        yield KeyLine()

    def on_mount(self) -> None:
        self._tasks.update()
        self.set_focus(self._tasks.starting_focus)

    def cluster_changed(self, changed: set[str]) -> None:
        """Show the present state of the tasks."""
        if changed & self._tasks.KINDS:
            self._tasks.update()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In the filter, Enter returns to the rows."""
        del parameters
        return action != "choose" or not isinstance(self.focused, FilterLine)

    def on_table_opened(self, event: Table.Opened) -> None:
        """Choose by a double click."""
        event.stop()
        self.action_choose()

    def action_choose(self) -> None:
        if self._tasks.chosen:
            self.dismiss(self._tasks.chosen)
