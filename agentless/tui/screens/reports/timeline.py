"""Who runs until when, who starts when, and what is reserved, on one axis of time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from agentless.client.words import in_gangs, place, short_target, starts, unix_time, where
from agentless.model.units import short_duration
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.screens.reports.base import SpannedReport
from agentless.tui.widgets.lines import Piece, fitted

SPANS = {
    "30 minutes": 1800.0, "2 hours": 7200.0, "12 hours": 43200.0, "2 days": 2 * 86400.0, "2 weeks": 14 * 86400.0,
}  # fmt: skip
WIDE = 70
"""The least width for the signs beside the title."""
WIDTHS = {100: (16, 26), WIDE: (16, 16), 0: (10, 12)}
"""The widths of where something is, and of who it belongs to, by the least width of the screen."""
ENDS = 11
"""The width of when it ends."""
NOW = "│"
"""The mark of the present, where the axis begins."""
TICK = 14
"""The least columns between two times."""
STEPS = (300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400)
"""Seconds between two times."""
MOST = 500
"""The most rows of each kind."""


class Timeline(SpannedReport):
    """Running tasks, pending ones and reservations, each as a bar from its start to its end."""

    NAME = "timeline"
    SPANS = SPANS

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(cluster, next(iter(SPANS)))
        self._is_chosen = False
        self._widths = WIDTHS[0]

    def span_changed(self) -> None:
        self._is_chosen = True
        self.show()

    def fetch(self) -> Any:
        return self.get("/v1/reservations")

    def drawn(self, found: Any, width: int) -> Sequence[Sequence[Piece]]:
        self._widths = next(widths for least, widths in WIDTHS.items() if width >= least)
        before = sum(self._widths) + 2
        now = time.time()
        if not self._is_chosen:
            self.span = self._fitting(found, now)
        axis = Axis(now, SPANS[self.span], max(10, width - before - len(NOW) - ENDS - 1))
        tasks = self.cluster.tasks.values()
        running = [task for task in tasks if task["state"] in ("running", "paused") and task["started_at"]]
        running.sort(key=lambda task: (_end(task) or float("inf"), task["id"]))
        name, signs = (f"The next {self.span} ", "strong"), ("█ runs  ▒ starts  ░ reserved  → no limit", "dim")
        lines: list[Sequence[Piece]] = [
            *([[name, signs]] if width >= WIDE else [[name], [signs]]),
            [(" " * before, ""), (f"{NOW}{axis.times()}{'ENDS':>{ENDS + 1}}", "axis")],
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

    def _fitting(self, found: Any, now: float) -> str:
        """The shortest time in which all tasks end whose end is known; without such a task, all reservations."""
        ends = [_end(task) or _begin(task) for task in self.cluster.tasks.values() if task["ended_at"] is None]
        known = [end for end in ends if end and end > now] or [unix_time(each["ends_at"]) for each in found]
        span = max(known, default=now) - now
        return next((name for name, seconds in SPANS.items() if seconds >= span), list(SPANS)[-1])

    def _runs(self, task: Row, axis: Axis) -> list[Piece]:
        end = _end(task)
        bar = axis.bar(axis.now, end, "█") if end else "─" * (axis.width - 1) + "→"
        return self._row(where(task), self.cluster.called(task), (bar, "good"), end)

    def _waits(self, task: Row, axis: Axis) -> list[Piece]:
        target, who, begin = short_target(task["target"]), self.cluster.called(task), _begin(task)
        if begin is None:
            words = fitted(task["reason"] or "start unknown", axis.width)
            return self._row(target, who, (words, "dim"), None, "unknown")
        if begin > axis.now + axis.span:
            return self._row(target, who, (f"{starts(task)} ▸".rjust(axis.width), "warn"), _end(task))
        return self._row(target, who, (axis.bar(begin, _end(task), "▒"), "warn"), _end(task))

    def _reserved(self, each: Row, axis: Axis) -> list[Piece]:
        begin, end = unix_time(each["begins_at"]), unix_time(each["ends_at"])
        who = f"{each['owner'] or 'maintenance'} {each['reason']}".strip()
        bar = axis.bar(begin, end, "░")
        if begin > axis.now + axis.span:
            bar = f"in {short_duration(begin - axis.now)} ▸".rjust(axis.width)
        return self._row(place(each["node"], each["gpus"]), who, (bar, "odd"), end)

    def _row(self, at: str, who: str, bar: Piece, end: float | None, without: str = "no limit") -> list[Piece]:
        ends, (first, second) = without if end is None else _clock(end), self._widths
        return [
            (fitted(at, first) + " ", "held"), (fitted(who, second) + " ", ""), (NOW, "axis"), bar,
            (f"{ends:>{ENDS + 1}}", "dim"),
        ]  # fmt: skip


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
        return (" " * first + sign * (last - first)).ljust(self.width)

    def times(self) -> str:
        """Round times of the axis, each at its column."""
        step = next((step for step in STEPS if step / self.span * self.width >= TICK), STEPS[-1])
        offset = datetime.fromtimestamp(self.now).astimezone().utcoffset() or timedelta()
        first = self.now + -(self.now + offset.total_seconds()) % step
        text = [*"now".ljust(self.width)]
        for number in range(int(self.span // step) + 1):
            moment = first + number * step
            word = f"│{datetime.fromtimestamp(moment).astimezone():{'%m-%d %H:%M' if step >= 43200 else '%H:%M'}}"
            if len("now") < (at := self.column(moment)) <= self.width - len(word):
                text[at : at + len(word)] = word
        return "".join(text)


def _begin(task: Row) -> float | None:
    """When it started, or is to start."""
    begin = task["started_at"] or task["scheduled_for"] or task["expected_start"]
    return unix_time(begin) if begin else None


def _end(task: Row) -> float | None:
    """When it ends at the latest."""
    begin = _begin(task)
    return begin + task["time_limit"] if begin is not None and task["time_limit"] else None


def _clock(moment: float) -> str:
    """The local time, with the date if that is not today's."""
    then, now = (datetime.fromtimestamp(each).astimezone() for each in (moment, time.time()))
    return f"{then:%H:%M}" if then.date() == now.date() else f"{then:%m-%d %H:%M}"
