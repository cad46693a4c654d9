"""Where the lines of a log come from: the controller's copy, read by pages, or a spool of what the node sends."""

from __future__ import annotations

import contextlib
import os
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from tempfile import TemporaryFile
from threading import RLock
from typing import Protocol

from agentless.client.client import Client
from agentless.errors import AgentlessError
from agentless.formats.frames import HEAD, NOTE, Frame, frame
from agentless.formats.log_index import BLOCK, Found, LogIndex, LogLine, Matches, Part, Span
from agentless.model.containers.log_query import LogCursor
from agentless.model.text import printable

SPOOL = 1 << 30
"""Bytes of a spool on this machine's disk, the last ones."""
_STEP = 4 << 20
"""Bytes that are searched at a time: nothing else is read or added meanwhile."""
_FOLDER = "/var/tmp"  # noqa: S108 - a file without a name; /tmp is often in memory


class LogSource(Protocol):
    """The lines of a log by number. All methods may take long, and run in threads."""

    def span(self, only: int | None) -> Span:
        """The lines that there are."""

    def lines(self, part: Part) -> tuple[int, list[LogLine]]:
        """The number of the first line, and the lines."""

    def find(self, words: str, first: int, *, back: bool, only: int | None) -> Found:
        """A part of a search."""

    def matches(self, words: str, first: int, *, only: int | None) -> Matches:
        """A part of a search for all lines."""


class KeptLog:
    """The log that the controller keeps of an ended task."""

    def __init__(self, client: Client, path: str, about: dict[str, int]) -> None:
        self._client, self._path = client, path
        self._ends = {None: about["lines"], 1: about["stdout_lines"], 2: about["stderr_lines"]}

    def span(self, only: int | None) -> Span:
        return Span(0, self._ends[only], self._ends[only])

    def lines(self, part: Part) -> tuple[int, list[LogLine]]:
        query = {"first": part.first, "count": part.count, "only": part.only, "cut": part.cut, "limit": part.limit}
        found = self._client.asked(f"{self._path}/log/lines", back=part.back, **query)
        return found["first"], [(line["stream"], line["text"].encode()) for line in found["lines"]]

    def find(self, words: str, first: int, *, back: bool, only: int | None) -> Found:
        found = self._client.asked(f"{self._path}/log/search", text=words, first=first, back=back, only=only)
        return Found(found["line"], found["go_on"])

    def matches(self, words: str, first: int, *, only: int | None) -> Matches:
        found = self._client.asked(f"{self._path}/log/matches", text=words, first=first, only=only)
        return Matches(tuple(found["lines"]), found["go_on"])


class SpooledLog:
    """A log that is being received: one thread adds frames, others read. Of a very long one, the beginning is gone."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._index = LogIndex()
        self._spans = self._spanned()
        self._times = array("d")  # Unix seconds, by the clock of the node
        self._lines = {only: array("Q") for only in (None, 1, 2)}  # how many had ended before each of these times
        try:
            self._file = TemporaryFile(dir=_FOLDER if os.access(_FOLDER, os.W_OK) else None, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise AgentlessError(f"cannot write the log to a temporary file: {error.strerror}") from None

    @property
    def size(self) -> int:
        """Bytes that were added so far."""
        return self._index.end

    @property
    def has_times(self) -> bool:
        """Whether it is known when its lines came."""
        return bool(self._times)

    def now_at(self, position: str) -> None:
        """What is added next came up to this position, which may have the times of the engine."""
        place = LogCursor.parse(position).place
        stamps = [stamp[0] for stamp in (place.out, place.err) if stamp] if place else []
        if not stamps:
            return
        now = datetime.fromisoformat(f"{max(stamps)[:26]}+00:00").timestamp()
        with self._lock:
            if not self._times or now >= self._times[-1] + 1:
                for only, lines in self._lines.items():
                    lines.append(self._index.span(only).ended)
                self._times.append(now)  # last: who looks a time up finds its lines

    def line_at(self, moment: float, only: int | None) -> int:
        """A line that came at this time, or shortly before: times are known of what came at once."""
        at = bisect_left(self._times, moment)  # without the lock, like `span`
        return self._lines[only][at] if at < len(self._times) else self.span(only).end

    def add(self, stream: int, data: bytes) -> None:
        """Add a frame."""
        if stream == NOTE:
            data = printable(data.decode(errors="replace")).encode()
        for at in range(0, len(data), BLOCK):
            part = data[at : at + BLOCK]
            with self._lock:
                if self._file.closed:
                    return
                self._write(frame(stream, part))
                self._index.add(stream, HEAD + len(part), part)
                self._index.forget(self._index.end - SPOOL)
                self._spans = self._spanned()

    def close(self) -> None:
        """Remove it from the disk."""
        with self._lock:
            self._file.close()

    def span(self, only: int | None) -> Span:
        """Without the lock, which a search may hold for long: who shows the log asks at each change."""
        return self._spans[only]

    def lines(self, part: Part) -> tuple[int, list[LogLine]]:
        with self._lock:
            return self._index.lines(self._read, part)

    def find(self, words: str, first: int, *, back: bool, only: int | None) -> Found:
        with self._lock:
            return self._index.find(self._read, words, first, back=back, only=only, step=_STEP)

    def matches(self, words: str, first: int, *, only: int | None) -> Matches:
        with self._lock:
            return self._index.matches(self._read, words, first, only=only, step=_STEP)

    # ------------------------------------------------------------------ inside

    def _spanned(self) -> dict[int | None, Span]:
        """The lines of both streams and of each, to be replaced as a whole."""
        return {only: self._index.span(only) for only in (None, 1, 2)}

    def _write(self, data: bytes) -> None:
        """The file is a ring: what comes last takes the place of what came first."""
        place = self._index.end
        try:
            while data:
                at = place % SPOOL
                count = os.pwrite(self._file.fileno(), data[: SPOOL - at], at)
                data, place = data[count:], place + count
        except OSError as error:
            raise AgentlessError(f"cannot write the log to a temporary file: {error.strerror}") from None

    def _read(self, place: int, size: int) -> bytes:
        if self._file.closed:
            return b""
        place %= SPOOL
        first = os.pread(self._file.fileno(), min(size, SPOOL - place), place)
        return first + (os.pread(self._file.fileno(), size - len(first), 0) if len(first) < size else b"")


def last_of(frames: Iterable[Frame], most: int) -> list[Frame]:
    """The last `most` bytes of these frames: one line may be as long as the whole log."""
    found = deque[Frame]()
    size = 0
    for stream, data in frames:
        found.append((stream, data))
        size += len(data)
        while size > most:
            first, text = found.popleft()
            if len(text) > size - most:
                found.appendleft((first, text[size - most :]))
            size = max(most, size - len(text))
    return list(found)


def kept(client: Client, path: str) -> KeptLog | None:
    """The kept log of a task, if it is the best that there is."""
    with contextlib.suppress(AgentlessError):
        about = client.asked(f"{path}/log")
        if about["complete"] or not about["on_node"]:
            return KeptLog(client, path, about)
    return None
