"""The view of tasks: live, pending, ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from agentless.client.words import WAITING, command_line, in_gangs, ran, rank, state, unix_time, where, why
from agentless.tui.data.cluster import ENDED, ClusterState, Row
from agentless.tui.screens.view import TaskListView
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece
from agentless.tui.widgets.table import TableColumn

_ON_NODES = ("running", "paused")


class Tasks(TaskListView):
    """A row for each live task, and for the last ones that have ended."""

    KINDS = frozenset({"nodes", "tasks"})
    EMPTY: ClassVar[tuple[str, ...]] = (
        "No tasks. A task is a command that runs on GPUs.",
        "",
        "Press n to submit one, or run:",
        "agentless submit 1x -- nvidia-smi",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mine", "Mine", tooltip="show only your tasks, or all"),
        Binding("a", "ended", "Ended", tooltip="hide or show ended tasks"),
    ]

    def __init__(self, cluster: ClusterState, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(cluster, id=id)
        self._only_mine = self._only_live = False
        self._sizes: Counter[str] = Counter()  # tasks of each batch
        self._over: Counter[str] = Counter()  # ended tasks of each batch

    def columns(self) -> Sequence[TableColumn]:
        return (
            TableColumn("ID", lambda task: task["id"], rank=-1),
            TableColumn("RANK", rank, rank=4),
            TableColumn("STATE", self._state),
            TableColumn("WHERE", where, rank=-1),
            TableColumn("TIME", ran, _elapsed, right=True),
            TableColumn("OWNER", lambda task: task["owner"], rank=2),
            TableColumn("NAME", lambda task: task["name"] or "", rank=1),
            TableColumn("BATCH", self._batch, lambda task: task["batch"], right=True, rank=3),
            TableColumn("COMMAND", self._what, command_line, flexible=True),
        )

    def all_rows(self) -> list[Row]:
        """The live ones, newest first; then the queue; then the ended ones, the last one first."""
        self._count()
        tasks = self.cluster.tasks.values()
        there = [task for task in tasks if task["ended_at"] is None and task["state"] not in WAITING]
        ended = [task for task in tasks if task["ended_at"] is not None]
        rows = [
            *sorted(there, key=lambda task: task["id"], reverse=True),
            *self.cluster.queue(),
            *sorted(ended, key=lambda task: (task["ended_at"], task["id"]), reverse=True),
        ]
        return in_gangs(task for task in rows if not self._hidden(task))

    def action_mine(self) -> None:
        """Show only your tasks, or everybody's."""
        self._only_mine = not self._only_mine
        self.show_anew()

    def action_ended(self) -> None:
        """Show ended tasks, or only live ones."""
        self._only_live = not self._only_live
        self.show_anew()

    def notes(self) -> list[str]:
        """Whose tasks are shown, and how many ended ones."""
        ended = sum(task["ended_at"] is not None for task in self.cluster.tasks.values())
        notes = ["only your tasks (press m for all)"] if self._only_mine else []
        if self._only_live:
            notes.append(f"{ended:,} ended tasks hidden (press a to show)")
        elif ended >= ENDED:
            notes.append(f"last {ended:,} ended tasks (older: agentless ps --all --limit N)")
        return notes

    def _hidden(self, task: Row) -> bool:
        return (self._only_mine and not task["mine"]) or (self._only_live and task["ended_at"] is not None)

    def _count(self) -> None:
        tasks = self.cluster.tasks.values()
        self._sizes = Counter(task["batch"] for task in tasks if not task["retried_as"])
        self._over = Counter(task["batch"] for task in tasks if task["ended_at"] and not task["retried_as"])

    def _is_unsure(self, task: Row) -> bool:
        return task["state"] in _ON_NODES and self.cluster.is_silent(task["node"])

    def _state(self, task: Row) -> Piece:
        """The state, or that the task is about to end, which only its reason says."""
        if self._is_unsure(task):
            return f"{task['state']}?", "dim"
        ends = task["state"] in _ON_NODES and why(task).startswith(("stopping", "killing"))
        return "stopping" if ends else state(task), look.style_of(task["state"])

    def _what(self, task: Row) -> Piece:
        reason = why(task) or (f"{task['node']} is unreachable" if self._is_unsure(task) else "")
        is_dim = task["ended_at"] or rank(task).startswith("└")
        is_there = "WHERE" in self.table.hidden and task["state"] not in WAITING
        place = f"{where(task)} " if is_there else ""
        words = (f"[{reason}] " if reason else "") + command_line(task)
        return place + self.named(task, words), "dim" if is_dim else ""

    def _batch(self, task: Row) -> str:
        size = self._sizes[task["batch"]]
        return f"{self._over[task['batch']]}/{size} done" if size > 1 else ""


def _elapsed(task: Row) -> float | None:
    """The seconds in TIME, below 0 until the task starts."""
    if coming := task["scheduled_for"] or task["expected_start"]:
        return time.time() - unix_time(coming)
    if task["started_at"] is None:
        return None
    return (unix_time(task["ended_at"]) if task["ended_at"] else time.time()) - unix_time(task["started_at"])
