"""Who runs until when, who starts when, and what is reserved, on one axis of time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from agentless.client.words import command_line, in_gangs, place, short_target, starts, unix_time, where
from agentless.model.units import short_duration
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.reports.base import SpannedReport
from agentless.tui.widgets.lines import Piece, fitted

SPANS = {"2 hours": 7200.0, "12 hours": 43200.0, "2 days": 2 * 86400.0, "2 weeks": 14 * 86400.0}
WIDE = 70
"""The least width for long names, and for the signs beside the title."""
WIDTHS, NARROW = (16, 26), (10, 12)
"""The widths of where something is, and of who it belongs to."""
TICK = 14
"""The least columns between two times."""
STEPS = (900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400)
"""Seconds between two times."""
MOST = 500
"""The most rows of each kind."""


class Timeline(SpannedReport):
    """Running tasks, pending ones and reservations, each as a bar from its start to its end."""

    SPANS = SPANS

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(cluster, "12 hours")
        self._widths = WIDTHS

    def span_changed(self) -> None:
        self.show()

    def fetch(self) -> Any:
        return self.get("/v1/reservations")

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        self._widths = WIDTHS if width >= WIDE else NARROW
        before = sum(self._widths) + 2
        axis = Axis(time.time(), SPANS[self.span], max(10, width - before))
        tasks = self.cluster.tasks.values()
        running = [task for task in tasks if task["state"] in ("running", "paused") and task["started_at"]]
        running.sort(key=lambda task: (_end(task) or float("inf"), task["id"]))
        name, signs = (f"The next {self.span} ", "strong"), ("█ runs  ▒ is to start  ░ reserved  → no limit", "dim")
        lines: list[Sequence[Piece]] = [
            *([[name, signs]] if width >= WIDE else [[name], [signs]]),
            [(" " * before, ""), (axis.times(), "axis")],
        ]
        for title, rows in (
            ("Running", [self._runs(task, axis) for task in running[:MOST]]),
            ("Waiting", [self._waits(task, axis) for task in in_gangs(self.cluster.queue())[:MOST]]),
            ("Reserved", [self._reserved(each, axis) for each in found[:MOST]]),
        ):
            if rows:
                lines += [[(title, "strong")], *rows]
        if not (running or self.cluster.queue() or found):
            lines.append([("Nothing runs, waits or is reserved", "dim")])
        return lines

    def _runs(self, task: Row, axis: Axis) -> list[Piece]:
        end = _end(task)
        bar = axis.bar(axis.now, end, "█") if end else "─" * (axis.width - 1) + "→"
        return self._row(where(task), _who(task), [(bar, "good")])

    def _waits(self, task: Row, axis: Axis) -> list[Piece]:
        coming = task["scheduled_for"] or task["expected_start"]
        if coming is None:
            why = fitted(task["reason"] or "start unknown", axis.width)
            return self._row(short_target(task["target"]), _who(task), [(why, "dim")])
        begin = unix_time(coming)
        if begin > axis.now + axis.span:
            words = f"{starts(task)} ▸".rjust(axis.width)
            return self._row(short_target(task["target"]), _who(task), [(words, "warn")])
        end = begin + task["time_limit"] if task["time_limit"] else None
        return self._row(short_target(task["target"]), _who(task), [(axis.bar(begin, end, "▒"), "warn")])

    def _reserved(self, each: Row, axis: Axis) -> list[Piece]:
        begin, end = unix_time(each["begins_at"]), unix_time(each["ends_at"])
        who = f"{each['owner'] or 'maintenance'} {each['reason']}".strip()
        if begin > axis.now + axis.span:
            words = f"in {short_duration(begin - axis.now)} ▸".rjust(axis.width)
            return self._row(place(each["node"], each["gpus"]), who, [(words, "odd")])
        return self._row(place(each["node"], each["gpus"]), who, [(axis.bar(begin, end, "░"), "odd")])

    def _row(self, at: str, who: str, bar: list[Piece]) -> list[Piece]:
        place, name = self._widths
        return [(fitted(at, place) + " ", "held"), (fitted(who, name) + " ", ""), *bar]


class Axis:
    """From `now` on, so many seconds in so many columns."""

    def __init__(self, now: float, span: float, width: int) -> None:
        self.now, self.span, self.width = now, span, width

    def column(self, moment: float) -> int:
        """The column of a time, within the axis."""
        return max(0, min(self.width, round((moment - self.now) / self.span * self.width)))

    def bar(self, begin: float, end: float | None, sign: str) -> str:
        """A bar between two times, at least a column wide; to the right edge without an end."""
        first = min(self.column(begin), self.width - 1)
        last = self.width if end is None else max(first + 1, self.column(end))
        return " " * first + sign * (last - first)

    def times(self) -> str:
        """Round times of the axis, each at its column."""
        step = next((step for step in STEPS if step / self.span * self.width >= TICK), STEPS[-1])
        offset = datetime.fromtimestamp(self.now).astimezone().utcoffset() or timedelta()
        first = self.now + -(self.now + offset.total_seconds()) % step
        text = [" "] * self.width
        for number in range(int(self.span // step) + 1):
            moment = first + number * step
            word = f"│{datetime.fromtimestamp(moment).astimezone():{'%m-%d %H:%M' if step >= 43200 else '%H:%M'}}"
            if (at := self.column(moment)) + len(word) <= self.width:
                text[at : at + len(word)] = word
        return "".join(text)


def _end(task: Row) -> float | None:
    return unix_time(task["started_at"]) + task["time_limit"] if task["time_limit"] else None


def _who(task: Row) -> str:
    return f"{task['owner'].partition('@')[0]} {task['name'] or command_line(task)}"
