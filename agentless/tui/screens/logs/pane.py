"""One log on the screen: it is read in one thread, and searched in another."""

from __future__ import annotations

import contextlib
import re
import time
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.words import state
from agentless.errors import AgentlessError, UsageError
from agentless.formats.log_index import MATCHES, Part
from agentless.model.moment import parse_past
from agentless.model.terminal_line import plain
from agentless.model.units import format_size
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.data.log_source import LogSource, SpooledLog, kept
from agentless.tui.widgets.lines import content
from agentless.tui.widgets.log_lines import Log
from agentless.tui.widgets.look import style_of

STREAMS = {1: "stdout", 2: "stderr"}
FOLLOWING = "Following"
LOADING = "Loading …"
NOTHING = "No output yet"
PREVIEW = 200
"""Lines of the end that are shown while a longer log of a task that runs is received."""
_FAST = 1 << 17
"""Bytes in a tenth of a second: a log that comes faster is not at its end yet."""
_DAY = 24 * 3600
_CLOCK = re.compile(r"\d{1,2}:\d{2}")
_HERE = {"good": "$text-success", "warn": "$text-warning", "bad": "$text-error", "": "", "dim": "$text-muted"}


class LogPane(Vertical):
    """The log of one task: what is known of it, and its lines."""

    DEFAULT_CSS = """
    LogPane { width: 1fr; }
    LogPane > Static { height: auto; max-height: 4; background: $panel; padding: 0 1; }
    LogPane.-beside > Static { background: $surface; color: $text-muted; }
    LogPane.-second { border-left: vkey $panel; }
    LogPane > Log { height: 1fr; }
    """

    def __init__(self, cluster: ClusterState, task: Row, client: Client) -> None:
        super().__init__()
        self._cluster, self._row, self._client = cluster, task, client
        self.log_lines = Log()
        self.spool: SpooledLog | None = None
        self._head = Static(markup=False)
        self._breaker, self._searching, self._counting = Breaker(), Breaker(), Breaker()
        self._matches: list[int] = []  # lines, as far as they are counted
        self._counted: int | None = 0  # up to this line; None: up to the end
        self._note, self._search_note = LOADING, ""
        self._received = self._ended = 0
        self._mark = ""

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self._cluster.tasks.get(self._row["id"], self._row)

    @property
    def has_times(self) -> bool:
        """Whether the log has times to go to."""
        return self.spool is not None and self.spool.has_times

    def compose(self) -> ComposeResult:
        yield self._head
        yield self.log_lines

    def on_mount(self) -> None:
        self.run_worker(self._read, thread=True)
        self.set_interval(0.1, self._take)
        self.describe()

    def on_unmount(self) -> None:
        """Break off reading and searching."""
        self._breaker.break_off()
        self._searching.break_off()
        self._counting.break_off()
        if self.spool:
            self.spool.close()

    def on_log_moved(self) -> None:
        self.describe()

    def on_resize(self) -> None:
        self.describe()

    def on_log_failed(self, message: Log.Failed) -> None:
        """Say why lines are missing."""
        self._note = message.words
        self.describe()

    def set_front(self, *, is_front: bool, alone: bool) -> None:
        """Show whether the keys are for this one of two."""
        self._mark = "" if alone else "▌ " if is_front else "  "
        self.set_class(not is_front, "-beside")
        self.describe()

    # ------------------------------------------------------------------ reading

    def _read(self) -> None:
        try:
            with self._breaker.watching():
                self._read_all(path_of(self._row))
            self._note = "No more output"
        except BrokenOff:
            return
        except AgentlessError as error:
            self._note = str(error)
        if self.is_running:
            in_app(self.app, self.describe)

    def _read_all(self, path: str) -> None:
        if self.about_task["ended_at"] and (log := kept(self._client, path)):
            in_app(self.app, self.log_lines.show, log)
            return
        if not self.about_task["ended_at"]:
            self._show_end(path)
        self.spool = spool = SpooledLog()
        for stream, data in self._client.followed(f"{path}/logs", at=spool.now_at):
            spool.add(stream, data)

    def _show_end(self, path: str) -> None:
        """Show the last lines before all others: the whole log may take long."""
        preview = SpooledLog()
        with contextlib.suppress(AgentlessError):  # the whole log will say why
            for stream, data in self._client.frames(f"{path}/logs", follow=False, tail=PREVIEW):
                preview.add(stream, data)
            if not preview.size:
                self._note = NOTHING
                in_app(self.app, self.describe)
        if preview.size:
            in_app(self.app, self.log_lines.show, preview)

    def _take(self) -> None:
        """Show what came, and instead of the last lines the whole log once it is here."""
        spool = self.spool
        if spool is None:
            return
        size = spool.size
        came, self._received = size - self._received, size
        if self.log_lines.source is not spool and size and (came < _FAST or not self.log_lines.follows):
            self._show_whole()
        if came:
            self.log_lines.update()
            if self._counted is None:
                self._count()
            if self._note in (LOADING, NOTHING) and self.log_lines.source is spool:
                self._note = FOLLOWING
            self.describe()

    def _show_whole(self) -> LogSource | None:
        """All that is here so far."""
        if self.spool and self.log_lines.source is not self.spool:
            before, self._note = self.log_lines.source, FOLLOWING if self._note in (LOADING, NOTHING) else self._note
            self.log_lines.show(self.spool)
            if isinstance(before, SpooledLog):
                before.close()
        return self.log_lines.source

    # ---------------------------------------------------------------- described

    def describe(self) -> None:
        """Say which log this is, and which part of it is in view."""
        task = self.about_task
        word = state(task)
        name = f"{task['id']} {task['name'] or ''}".strip()
        where = f" on {task['node']}" if task["node"] else ""
        looks = style_of(task["state"])
        line = [(self._mark, "bold"), (name, "bold"), ("  ", ""), (word, _HERE.get(looks, "")), (where, "$text-muted")]
        indent = " " * len(self._mark)
        about = "".join(f"\n{indent}{words}" for words in _in_lines(self._parts(), self.size.width - 2 - len(indent)))
        self._head.update(content(*line, (about, "$text-muted")))

    def _parts(self) -> list[str]:
        log = self.log_lines
        span = log.span
        lines = f"{span.end:,} line{'s' * (span.end != 1)}"
        first, last = log.in_view
        if log.follows or not span.end:
            parts = [lines]
        else:
            share = 100 * (last + 1) // span.end
            parts = [f"{first + 1:,}-{last + 1:,} of {lines}, {share} %"]
        if span.first:
            parts.append(f"the first {span.first:,} lines are not here (press X to export all)")
        paused = self._note == FOLLOWING and not log.follows
        note = "Paused; press f to follow" if paused else self._note
        if self.spool and log.source is not self.spool and self.spool.size:
            note = f"Loading the whole log: {format_size(self.spool.size)}"
        parts += [f"only {STREAMS[log.only]} (press {log.only} for both)"] if log.only else []
        parts += ["wrapped"] if log.wraps else []
        parts += [f"/{log.sought}{self._place_among_matches()}"] if log.sought else []
        parts += [self._search_note, note]
        return [part for part in parts if part]

    def wrap(self) -> None:
        """Wrap long lines, or cut them."""
        top = self.log_lines.in_view[0]
        self.log_lines.wraps = not self.log_lines.wraps
        self.log_lines.lay_out(top)
        self.describe()

    def show_only(self, stream: int) -> None:
        """Show only this stream, or both."""
        self.log_lines.show_only(None if self.log_lines.only == stream else stream)
        self._forget_matches()
        self._count()
        self.describe()

    # ------------------------------------------------------------------- search

    def search(self, words: str) -> None:
        """Search from the lines in view on."""
        self.end_search()
        self.log_lines.sought = words
        self.log_lines.redraw()
        self.search_on(1)

    def end_search(self) -> bool:
        """Mark no matches any more; whether there was a search."""
        was = self.stop_search() or bool(self.log_lines.sought)
        self.log_lines.sought = ""
        self._forget_matches()
        self.log_lines.redraw()
        self.describe()
        return was

    def search_on(self, by: int) -> None:
        """Go to the next match (1), or the one before (-1)."""
        log, source = self.log_lines, self._show_whole()
        if not log.sought or source is None:
            self.describe()
            return
        self.stop_search()
        first, last = log.in_view
        start = log.match + by if log.match is not None else (first if by > 0 else last)
        search = partial(self._search, self._searching, source, log.sought, start, back=by < 0, only=log.only)
        self._search_note = "Searching …"
        self.run_worker(search, thread=True)
        self.describe()

    def stop_search(self) -> bool:
        """Whether there was one."""
        was, self._search_note = bool(self._search_note), ""
        self._searching.break_off()
        self._searching = Breaker()
        self.describe()
        return was

    def _search(
        self, breaker: Breaker, source: LogSource, words: str, start: int, *, back: bool, only: int | None
    ) -> None:
        """In a thread: the whole log, from a line on and then from its other end."""
        try:
            with breaker.watching():
                place = self._found(breaker, source, words, start, back=back, only=only)
        except BrokenOff:
            return
        except AgentlessError as error:
            self.post_message(Log.Failed(str(error)))
            place = None
        if self.is_running and breaker is self._searching:
            in_app(self.app, self._show_match, words, place)

    def _found(
        self, breaker: Breaker, source: LogSource, words: str, start: int, *, back: bool, only: int | None
    ) -> tuple[int, int] | None:
        """The line of the match, and its column."""
        span = source.span(only)
        edge = span.end - 1 if back else span.first
        for begin in (start, edge) if span.first <= start < span.end else (edge,):
            at: int | None = begin
            while at is not None and breaker is self._searching:
                found = source.find(words, at, back=back, only=only)
                if found.line is not None:
                    first, lines = source.lines(Part(found.line, 1, only))
                    text = plain(lines[0][1].decode(errors="replace")) if lines and first == found.line else ""
                    return found.line, max(0, text.lower().find(words.lower()))
                at = found.go_on
                if at is not None:
                    share = 100 * (at - span.first) // max(1, span.end - span.first)
                    in_app(self.app, self._tell, breaker, 100 - share if back else share)
        return None

    def _tell(self, breaker: Breaker, share: int) -> None:
        note = f"Searching … {share} % (Esc stops)"
        if breaker is self._searching and note != self._search_note:
            self._search_note = note
            self.describe()

    def _show_match(self, words: str, place: tuple[int, int] | None) -> None:
        self._search_note = ""
        if place is None:
            self.notify(f"{words!r} not found", severity="warning", markup=False)
            self.describe()
        else:
            self.log_lines.go_to(place[0], place[1])
            self._count()

    # ------------------------------------------------------------------ counting

    def _place_among_matches(self) -> str:
        """`: 3 of 41`; of a log that is still being counted, or has very many, `: 3 of 10,000+`."""
        log, count = self.log_lines, len(self._matches)
        at = bisect_left(self._matches, -1 if log.match is None else log.match)
        if not count or self._matches[min(at, count - 1)] != log.match:
            return ""
        return f": {at + 1:,} of {count:,}{'' if self._counted is None else '+'}"

    def _forget_matches(self) -> None:
        self._counting.break_off()
        self._matches, self._counted = [], 0

    def _count(self) -> None:
        """Count the matches, or those that came since."""
        log = self.log_lines
        if not log.sought or log.source is None or len(self._matches) >= MATCHES:
            return
        ended = log.source.span(log.only).ended
        first = self._counted
        if first is None:  # all were counted: what had not ended may have changed
            if self._ended == ended:
                return
            first = self._ended
        self._matches = self._matches[: bisect_left(self._matches, first)]
        self._counting.break_off()
        self._counting, self._counted, self._ended = Breaker(), first, ended
        count = partial(self._count_all, self._counting, log.source, log.sought, first, log.only)
        self.run_worker(count, thread=True)

    def _count_all(self, breaker: Breaker, source: LogSource, words: str, first: int, only: int | None) -> None:
        """In a thread, part by part."""
        at: int | None = first
        try:
            with breaker.watching():
                while at is not None and breaker is self._counting:
                    found = source.matches(words, at, only=only)
                    at = found.go_on
                    in_app(self.app, self._take_matches, breaker, found.lines, at)
        except (BrokenOff, AgentlessError):
            return  # the search itself says what is wrong

    def _take_matches(self, breaker: Breaker, lines: Sequence[int], go_on: int | None) -> None:
        if breaker is self._counting:
            self._matches += lines
            self._counted = go_on
            if len(self._matches) >= MATCHES:
                self._counting = Breaker()  # enough
            self.describe()

    # --------------------------------------------------------------------- jump

    def jump(self, text: str) -> None:
        """Go to a line, a percentage or a time."""
        source = self._show_whole()
        if source is None:
            return
        span = source.span(self.log_lines.only)
        try:
            self.log_lines.go_to(self._place(text, span.first, span.end))
        except UsageError as error:
            self.notify(str(error), severity="warning", markup=False)

    def _place(self, text: str, first: int, end: int) -> int:
        number = text.removesuffix("%").replace(",", "").strip()
        if number.isascii() and number.isdigit() and len(number) <= 15:
            value = int(number)
            return first + (end - 1 - first) * min(value, 100) // 100 if text.endswith("%") else value - 1
        now = time.time()
        wanted = parse_past(text, now)
        if _CLOCK.fullmatch(text) and wanted > now:
            wanted -= _DAY
        if not self.has_times or self.spool is None:
            raise UsageError("This log has no times; go to a line such as 1200, or a percentage such as 40%")
        return self.spool.line_at(wanted, self.log_lines.only)


def _in_lines(parts: list[str], width: int) -> list[str]:
    """The parts in as few lines as they fit in, broken between them."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines
