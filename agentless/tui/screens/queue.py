"""The view of the queue."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import command_line, in_gangs, rank, starts, why
from agentless.tui.data.cluster import Row
from agentless.tui.screens.view import TaskListView
from agentless.tui.widgets import look
from agentless.tui.widgets.table import TableColumn


class Queue(TaskListView):
    """A row for each pending task, in the order of the queue."""

    KINDS = frozenset({"tasks"})
    EMPTY = ("No tasks wait. A task waits here until the GPUs that it needs are free.",)

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("#", lambda task: look.of(task["position"], "*" if task["moved"] else ""), right=True),
            TableColumn("ID", lambda task: task["id"], rank=-1),
            TableColumn("RANK", rank),
            TableColumn("REQUEST", lambda task: task["target"]),
            TableColumn("STARTS", lambda task: starts(task) or "unknown", _start, right=True),
            TableColumn("OWNER", lambda task: task["owner"], rank=1),
            TableColumn(
                "PRIORITY", lambda task: str(task["priority"]), lambda task: task["priority"], right=True, rank=3
            ),
            TableColumn("NAME", lambda task: task["name"] or "", rank=4),
            TableColumn("REASON", lambda task: self.named(task, why(task)), why, flexible=True),
            TableColumn("COMMAND", command_line, rank=9),
        )

    def all_rows(self) -> list[Row]:
        return in_gangs(self.cluster.queue())


def _start(task: Row) -> str | None:
    coming: str | None = task["expected_start"] or task["scheduled_for"]
    return coming
