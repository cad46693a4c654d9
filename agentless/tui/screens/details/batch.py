"""The tasks of a batch: their values, how far they are, and the last line that each has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.words import command_line, ran, state, where
from agentless.errors import AgentlessError
from agentless.model.text import last_words, printable
from agentless.model.units import counted
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.data.log_source import last_of
from agentless.tui.screens.details.parts import meter
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.view import TaskListView
from agentless.tui.widgets import look
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.lines import content
from agentless.tui.widgets.table import Table, TableColumn

MOST = 100
"""The most tasks whose last line is asked for."""
LINE = 4096
"""The most bytes of that line."""
VALUE = 24
"""The most columns of a value."""
_BAR = 30


class BatchTable(TaskListView):
    """A row for each task, with a column for each value in which they differ."""

    KINDS = frozenset({"tasks"})

    def __init__(self, cluster: ClusterState, batch: str) -> None:
        self._batch = batch
        self._names = list(dict.fromkeys(name for task in mates(cluster, batch) for name in task["parameters"]))
        self.last_lines: dict[str, str] = {}
        super().__init__(cluster, id="batch")

    def columns(self) -> Sequence[TableColumn]:
        values = [
            TableColumn(printable(name.upper())[:VALUE], partial(_value, name), partial(_key, name))
            for name in self._names
        ]
        return (
            TableColumn("ID", lambda task: task["id"], rank=1),
            *values,
            TableColumn("STATE", lambda task: (state(task), look.style_of(task["state"]))),
            TableColumn("TIME", ran, right=True),
            TableColumn("WHERE", where, rank=2),
            TableColumn("LAST OUTPUT", lambda task: (self.last_lines.get(task["id"], ""), ""), flexible=True),
        )

    def action_clear(self) -> None:
        """Clear the filter; without one, leave."""
        if self.is_filtered:
            super().action_clear()
        else:
            self.app.pop_screen()

    def all_rows(self) -> list[Row]:
        return sorted(mates(self.cluster, self._batch), key=lambda task: task["id"])


class BatchScreen(Screen[None]):
    """A batch: how far it is, and a table of its tasks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,backspace", "app.pop_screen", "Back", tooltip="leave this screen"),
    ]
    CSS = """
    BatchScreen > Static { height: 2; padding: 0 1; background: $panel; }
    BatchScreen > BatchTable { height: 1fr; }
    """

    def __init__(self, cluster: ClusterState, batch: str, client: Client) -> None:
        super().__init__()
        self._cluster, self._batch, self._client = cluster, batch, client
        self._title = Static(markup=False)
        self.table = BatchTable(cluster, batch)
        self._breaker = Breaker()

    def compose(self) -> ComposeResult:
        yield self._title
        yield self.table
        yield KeyLine()

    def on_mount(self) -> None:
        """Show what is known, and ask for the last lines."""
        self.cluster_changed({"tasks"})
        self.set_focus(self.table.table.body)
        self.run_worker(self._ask, thread=True)

    def on_unmount(self) -> None:
        self._breaker.break_off()

    @property
    def about_task(self) -> Row | None:
        return self.table.about_task

    @property
    def about_node(self) -> None:
        """None: they may be on many."""

    def on_table_opened(self, message: Table.Opened) -> None:
        """Show the chosen task in full."""
        message.stop()
        if task := self.about_task:
            self.app.push_screen(TaskDetails(self._cluster, task))

    def cluster_changed(self, changed: set[str]) -> None:
        """Show what is known now."""
        if "tasks" not in changed or not self.is_mounted:
            return
        tasks = mates(self._cluster, self._batch)
        counts = Counter(task["state"] for task in tasks)
        name = next((task["name"] for task in tasks if task["name"]), "") or (command_line(tasks[0]) if tasks else "")
        done = sum(task["ended_at"] is not None for task in tasks)
        words = ", ".join(f"{count} {each}" for each, count in counts.most_common())
        self._title.update(
            content(
                (printable(f"{self._batch}  {name}\n"), "bold"),
                *meter(done / len(tasks) if tasks else 0.0, _BAR, "utilization"),
                f" {done} of {counted(len(tasks), 'task')} done: {words}",
            )
        )
        self.table.update()

    def _ask(self) -> None:
        """The last line of each, in a thread."""
        begun = [task for task in self.table.all_rows() if task["started_at"]][:MOST]
        try:
            with self._breaker.watching():
                for task in begun:
                    self._ask_for(task)
                    in_app(self.app, self.table.update)
        except BrokenOff:
            return

    def _ask_for(self, task: Row) -> None:
        try:
            frames = last_of(self._client.frames(f"{path_of(task)}/logs", follow=False, tail=1), LINE)
        except AgentlessError:
            return
        self.table.last_lines[task["id"]] = last_words(b"".join(data for _, data in frames))


def mates(cluster: ClusterState, batch: str) -> list[Row]:
    """The tasks of a batch; of each its last try."""
    return [task for task in cluster.tasks.values() if task["batch"] == batch and not task["retried_as"]]


def _value(name: str, task: Row) -> str:
    return str(task["parameters"].get(name, ""))[:VALUE]


def _key(name: str, task: Row) -> tuple[bool, float, str]:
    """Numbers by their size, then words."""
    value = str(task["parameters"].get(name, ""))
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value
