"""What is wrong, what waits, who uses most, and what runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from rich.cells import cell_len

from agentless.client.words import left, rank, starts, unix_time, where
from agentless.model.units import counted, short_duration
from agentless.tui.data.cluster import ClusterState, Row, count
from agentless.tui.screens.events import event_about, event_words
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import GivenLines, Piece, fitted, folded

MOST = 4
"""The most lines of one piece of news."""
HINTS = 12
"""The most lines of what is for a new user, more than it takes on a phone."""
LINES = 200
"""The most lines of all news; the views of tasks and of the queue have every one."""
LINKS = "Each view has an address: the back button goes back, and a copied address opens the same again."
HINT = "New here? ? lists all keys, / finds anything, Enter shows details, n submits a task."
RECENT = 40
"""The most events."""
_IN_QUEUE, _STARTED = "job-queued", "launched"
_BEFORE_START = ("assigned", "met", "step")
"""What a start makes old."""
OWNERS = 5
"""The most owners whose GPUs are counted."""
ROOM = 12
"""Columns of when an event was, and of gaps; a named task has its id only where there is space for all."""
HEADED = 8
"""The least height for headings."""
RUNNING = ("running", "assigning", "paused")


class News(GivenLines, can_focus=False):
    """Problems with what mends them, pending tasks with when they start, owners, and running tasks.

    `is_new`: somebody sees the dashboard for the first time. `is_tall`: owners get a bar each, not one line. There is
    always room for a scrollbar: else all lines were wrapped again when it comes.
    """

    DEFAULT_CSS = "News { scrollbar-gutter: stable; }"

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self.is_new = self.is_tall = False
        self._cluster = cluster
        self._made: tuple[int, list[list[Piece]]] | None = None  # what was wrapped for `wanted`, and its width

    def update(self) -> None:
        """Show what is known now; a hidden widget has no width to wrap for."""
        made, self._made = self._made, None
        if not self.size.width:
            return
        before, width = len(self.lines), self.scrollable_content_region.width
        self.lines = made[1] if made and made[0] == width else self._wrapped(width)
        if self.size.height < HEADED:
            self.lines = [line for line in self.lines if not _is_heading(line)]
        if before != len(self.lines):
            self.refresh(layout=True)
        if (more := len(self.lines) - self.size.height) > 0 and _is_heading(self.lines[0]):
            self._say_more(f" {more} more lines (press ])")
        self.redraw()

    def on_resize(self) -> None:
        """Wrap for this width."""
        self.update()

    def wanted(self, width: int) -> int:
        """The number of lines in so many columns, for the `update` that follows."""
        width -= self.scrollbar_size_vertical
        self._made = width, self._wrapped(width)
        return len(self._made[1])

    def _say_more(self, words: str) -> None:
        """At the right of the first heading."""
        title, (rule, style) = self.lines[0][0], self.lines[0][-1]
        if cell_len(rule) > len(words):
            self.lines[0] = [title, (rule[: -len(words)], style), (words, "dim")]

    def _wrapped(self, width: int) -> list[list[Piece]]:
        lines = list(islice(self._all(max(20, width)), LINES + 1))
        if len(lines) > LINES:
            lines[LINES] = [("… and more; press 4 for all tasks, 5 for the whole queue", "dim")]
        return lines

    def _all(self, width: int) -> Iterator[list[Piece]]:
        """The lines, wrapped only as far as they are asked for."""
        if self.is_new:
            links = f" {LINKS}" if self.app.is_web else ""
            for line in folded(HINT + links, width, HINTS):
                yield [(line, "held")]
        problems, queue = self._cluster.problems(), self._cluster.queue()
        runs = [task for task in self._cluster.tasks.values() if task["state"] in RUNNING]
        yield from self._of_problems(problems, width)
        owners = self._of_owners(width)
        if not self.is_tall:  # in one line, above what may be hidden
            yield from owners
        if queue:
            yield _heading("Waiting", len(queue), width)
            yield from self._of_queue(queue, width)
        yield from owners
        if runs:
            paused = count(runs, "paused")
            words = f"Running {len(runs) - paused}, paused {paused}" if paused else f"Running {len(runs)}"
            yield _heading(words, 0, width)
            yield from self._of_tasks(runs, width)
        if not (queue or runs):
            yield [(fitted("No tasks. To submit one, press n, or run:", width), "dim")]
            yield [(fitted("agentless submit 1x -- nvidia-smi", width), "")]
        if self._cluster.events:
            yield _heading("Recently", 0, width)
            yield from self._of_events(width)

    def _of_problems(self, problems: list[tuple[str, str]], width: int) -> Iterator[list[Piece]]:
        if problems:
            yield _heading("Problems", len(problems), width, "sick")
        alike: dict[str, list[str]] = {}
        for about, words in problems:
            alike.setdefault(words, []).append(about)
        for words, names in alike.items():
            sign: Piece = ("! ", "bad")
            about = f"{names[0]} and {len(names) - 1} more:" if len(names) > 1 else names[0]
            for line in folded(f"{about} {words}", width - 2, MOST):
                yield [sign, (line, "")]
                sign = ("  ", "")

    def _of_queue(self, queue: list[Row], width: int) -> Iterator[list[Piece]]:
        """In the order of their starts: a short task may start before those ahead of it."""
        waiting: dict[tuple[str, str], list[Row]] = {}
        for task in sorted(queue, key=_start):
            waiting.setdefault((task["batch"], task["reason"] or ""), []).append(task)
        for at, ((batch, reason), (task, *others)) in enumerate(waiting.items()):
            when = starts(task) or ""
            if not at and task["state"] == "pending":
                when = f"next, {when or 'start unknown'}"
            wants = f": {len(others) + 1} of {batch} pending" if others else f" needs {where(task)}"
            name = f" {task['name']}" if task["name"] else ""
            head = fitted(f" {self._cluster.who(task['owner'])}{name}{wants}", width - len(when) - 1)
            yield [(head, "warn" if at else "strong"), (f" {when}", "strong")]
            for line in folded(reason, width - 3, MOST):
                yield [("   " + line, "dim")]

    def _of_owners(self, width: int) -> Iterator[list[Piece]]:
        """Who holds how many GPUs, and how many slices."""
        held = {  # each once, however many tasks share it
            (self._cluster.who(task["owner"]), gpu["node"], gpu["uuid"], bool(gpu.get("parent")))
            for gpu in self._cluster.gpus.values()
            for task in self._cluster.holders(gpu)
        }
        if not held:
            return
        whole = Counter(owner for owner, *_, is_part in held if not is_part)
        parts = Counter(owner for owner, *_, is_part in held if is_part)
        owners = sorted({*whole, *parts}, key=lambda owner: (-whole[owner], -parts[owner], owner))[:OWNERS]
        kind = next((each["kind"] for each in self._cluster.slices()), "")
        sums: dict[str, str] = {}
        for owner in owners:
            gpus = counted(whole[owner], "GPU") if self.is_tall else str(whole[owner])
            both = (gpus if whole[owner] else "", counted(parts[owner], kind) if parts[owner] else "")
            sums[owner] = " + ".join(filter(None, both))
        if not self.is_tall:
            words = " · ".join(f"{owner} {sums[owner]}" for owner in owners)
            yield [("Most GPUs  ", "strong"), (fitted(words, width - 11), "held")]
            return
        yield _heading("Most GPUs", 0, width)
        names = min(max(map(len, owners)), max(8, width // 3))
        room = max(9, 1 + max(map(len, sums.values())))
        for owner in owners:
            share = whole[owner] / len(self._cluster.whole_gpus())
            yield [
                (fitted(owner, names) + " ", "held"),
                *look.bar(share, max(0, width - names - 1 - room), "held"),
                (fitted(f" {sums[owner]}", room), ""),
            ]

    def _of_tasks(self, runs: list[Row], width: int) -> Iterator[list[Piece]]:
        for task in sorted(runs, key=lambda task: task["started_at"] or "", reverse=True):
            place, time_left = where(task), left(task) if task["state"] == "running" else task["state"]
            room = max(0, width - 14 - 1 - len(time_left) - 1)
            what = f"{rank(task)} {self._cluster.called(task)}".strip()
            yield [(fitted(place, 14) + " ", "held"), (fitted(what, room), ""), (f" {time_left}", "dim")]

    def _of_events(self, width: int) -> Iterator[list[Piece]]:
        """The newest events first."""
        for event in _without_repetition(list(islice(reversed(self._cluster.events), RECENT))):
            about, (what, style) = event_about(event), event_words(event)
            if event.get("event") == _STARTED and event["task"]["node"]:
                what += f" on {where(event['task'])}"
            if event.get("task"):
                called = f"{self._cluster.who(event['task']['owner'])} {event['task']['name'] or ''}".rstrip()
                has_room = len(about) + len(called) + len(what) + ROOM <= width or not event["task"]["name"]
                about = f"{about} {called}" if has_room else called
            elif event.get("cause"):
                what += f": {event['cause']}"
            when = short_duration(self._cluster.now - event["at"])
            room = max(0, width - len(when) - 5)
            words = fitted(f"{about} ", min(len(about) + 1, room))
            yield [(words, ""), (fitted(what, room - len(words)), style), (f" {when} ago", "dim")]


def _start(task: Row) -> tuple[bool, float]:
    """A sort key by which tasks are in the order of their starts; those with an unknown one stay as they are, last."""
    coming = task["scheduled_for"] or task["expected_start"]
    return coming is None, unix_time(coming) if coming else 0.0


def _without_repetition(events: list[Row]) -> list[Row]:
    """The events, newest first; of a node that stays as it is, only the one that said so first.

    Of a job in the queue of a cluster only the last one: its reasons change often. Of a start only that it is done.
    """
    fresh: list[Row] = []
    said: dict[str, Piece] = {}
    started = {event_about(event): event["at"] for event in reversed(events) if event.get("event") == _STARTED}
    queued = {event_about(event): event["at"] for event in reversed(events) if event.get("event") == _IN_QUEUE}
    for event in reversed(events):
        about, words = event_about(event), event_words(event)
        is_last = event.get("event") != _IN_QUEUE or queued[about] == event["at"]
        is_old = event.get("event") in _BEFORE_START and event["at"] <= started.get(about, 0.0)
        if is_last and not is_old and (event.get("task") or said.get(about) != words):
            fresh.append(event)
        said[about] = words
    return fresh[::-1]


def _heading(title: str, count: int, width: int, style: str = "strong") -> list[Piece]:
    words = f"{title} {count}" if count else title
    return [(words, style), (" " + "─" * max(0, width - len(words) - 1), "axis")]


def _is_heading(line: list[Piece]) -> bool:
    return line[-1][1] == "axis"
