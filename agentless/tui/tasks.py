"""The view of all tasks, those that live first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from agentless.tui import look
from agentless.tui.board import Row
from agentless.tui.lines import Piece
from agentless.tui.table import Column
from agentless.tui.view import View
from agentless.words import ran, seconds, state, where, why, words


class Tasks(View):
    """A line for each task that lives, and for the last ones that have ended."""

    KINDS = frozenset({"tasks"})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mine", "Mine"),
        Binding("a", "ended", "Ended"),
    ]

    def columns(self) -> Sequence[Column]:
        """As `agentless ps` has them."""
        return (
            Column("ID", lambda task: task["id"]),
            Column("STATE", lambda task: (state(task), look.style_of(task["state"]))),
            Column("WHERE", where),
            Column("TIME", ran, _began, right=True),
            Column("OWNER", lambda task: task["owner"], rank=1),
            Column("NAME", lambda task: task["name"] or "", rank=3),
            Column("BATCH", self._batch, lambda task: task["batch"], right=True, rank=2),
            Column("COMMAND", _what, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        """The newest first, and those that have ended behind the others."""
        self._count()
        tasks = [task for task in self.board.tasks.values() if not self._hidden(task)]
        return sorted(tasks, key=lambda task: (task["ended_at"] is None, task["id"]), reverse=True)

    def name_of(self, row: Row) -> object:
        """Its id."""
        return row["id"]

    def task_of(self, row: Row) -> Row | None:
        """The task."""
        return row

    def node_of(self, _: Row) -> str | None:
        """None: it is about tasks."""
        return None

    def action_mine(self) -> None:
        """Only mine, or everybody's."""
        self._only_mine = not self._only_mine
        self.update()

    def action_ended(self) -> None:
        """Also those that have ended, or only those that live."""
        self._only_live = not self._only_live
        self.update()

    _only_mine = _only_live = False

    def _hidden(self, task: Row) -> bool:
        return (self._only_mine and not task["mine"]) or (self._only_live and task["ended_at"] is not None)

    def _count(self) -> None:
        tasks = self.board.tasks.values()
        self._sizes = Counter(task["batch"] for task in tasks if not task["retried_as"])
        self._over = Counter(task["batch"] for task in tasks if task["ended_at"] and not task["retried_as"])

    def _batch(self, task: Row) -> str:
        size = self._sizes[task["batch"]]
        return f"{self._over[task['batch']]}/{size} over" if size > 1 else ""


def _began(task: Row) -> float | None:
    return seconds(task["started_at"]) if task["started_at"] else None


def _what(task: Row) -> Piece:
    reason = f"  [{why(task)}]" if why(task) else ""
    return words(task) + reason, "dim" if task["ended_at"] else ""
