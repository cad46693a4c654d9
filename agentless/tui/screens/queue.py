"""The view of those who wait."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.client.words import ran, words
from agentless.tui.data.board import Row
from agentless.tui.screens.view import TaskView
from agentless.tui.widgets import look
from agentless.tui.widgets.table import Column


class Queue(TaskView):
    """A line for each task that waits, those first that are next."""

    KINDS = frozenset({"tasks"})

    def columns(self) -> Sequence[Column]:
        """The place, when it starts, and what is in its way."""
        return (
            Column("#", lambda task: look.of(task["position"], "*" if task["moved"] else ""), right=True),
            Column("ID", lambda task: task["id"]),
            Column("WANTS", lambda task: task["target"]),
            Column("STARTS", ran, lambda task: task["expected_start"] or task["scheduled_for"], right=True),
            Column("OWNER", lambda task: task["owner"], rank=1),
            Column("PRIORITY", lambda task: str(task["priority"]), lambda task: task["priority"], right=True, rank=3),
            Column("NAME", lambda task: task["name"] or "", rank=4),
            Column("WHY IT WAITS", lambda task: task["reason"] or "", flexible=True),
            Column("COMMAND", words, rank=9),
        )

    def all_rows(self) -> list[Row]:
        """In their order."""
        return self.board.queue()
