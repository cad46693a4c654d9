"""Reads `docker logs --timestamps` as the task's output, and keeps the position in it.

Each line begins with the time when it arrived, in nanoseconds. A line of more than PIECE bytes comes in pieces, each
with the time of the line.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from agentless.model.containers.log_query import LogPosition, Stamp

PIECE = 16384
"""Bytes of a piece, as Docker cuts what has no end of line."""
MARK, MARKS = 1 << 20, 4
"""The time is noted every MARK bytes. After MARKS more of these, nothing older arrives on either stream: the pipes and
windows that both pass on their way here hold less."""

_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
_STAMP = re.compile(rb"(%b) " % _TIME)
_LINES = re.compile(rb"(?:%b [^\n]{0,%d}\n)+" % (_TIME, PIECE - 1))
_LENGTH = 31


class StampedReading:
    """Reads the two streams of that command, from a `place` on. `shown`: the times stay in front of the lines."""

    def __init__(self, place: LogPosition | None, *, shown: bool) -> None:
        place = place or LogPosition()
        self._streams = {1: _Stream(place.out, shown=shown), 2: _Stream(place.err, shown=shown)}
        self._floor = place.floor
        self._read = 0
        self._marks = deque[tuple[int, str]]()

    def __call__(self, fd: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The task's own output on that stream. A line without a time is the client program's, and left out."""
        stream = self._streams[fd]
        if found := b"".join(stream.feed(data)):
            yield fd, found
        self._read += len(data)
        if stream.last and self._read >= MARK + (self._marks[-1][0] if self._marks else 0):
            self._marks.append((self._read, stream.last[0]))
            while self._read - self._marks[0][0] >= MARK * MARKS:
                self._floor = self._marks.popleft()[1]

    @property
    def place(self) -> LogPosition:
        """How far it has come."""
        return LogPosition(self._streams[1].last, self._streams[2].last, self._floor)


class _Stream:
    """One stream. `last` is the time of what was read last of it, and how many bytes of that time."""

    def __init__(self, last: Stamp | None, *, shown: bool) -> None:
        self.last = last
        self._shown = shown
        self._known = last  # to be left out, up to there
        self._passed = 0  # bytes of that time that were
        self._rest = b""
        self._stamp = b""
        self._left = 0  # bytes that the piece may still have; 0: another one begins
        self._within = False  # a line

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What is new in it."""
        data, at = self._rest + data, 0
        while at < len(data):
            begins = not self._left
            if begins and not (self._within or self._known or self._shown) and (lines := _LINES.match(data, at)):
                at = lines.end()
                yield self._all_of(lines[0])
                continue
            if begins:
                if len(data) - at < _LENGTH and not (self._within and b"\n" in data[at:]):
                    break
                found = _STAMP.match(data, at)
                if found and (not self._within or found[1] == self._stamp):
                    self._stamp, at = found[1], found.end()
                elif not self._within:
                    at = data.find(b"\n", at) + 1 or len(data)
                    continue
                begins, self._left = not self._within, PIECE
            cut = data.find(b"\n", at, at + self._left) + 1
            end = cut or min(at + self._left, len(data))
            self._left = 0 if cut else self._left - (end - at)
            self._within = not cut
            yield self._new(self._stamp.decode(), data[at:end], begins=begins)
            at = end
        self._rest = data[at:]

    def _all_of(self, lines: bytes) -> bytes:
        """Whole lines, none of which was read before, without their times: much faster than one by one."""
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :][: _LENGTH - 1]
        same = lines[0 if lines.startswith(last) else lines.find(b"\n" + last) + 1 :]
        self._count(last.decode(), len(same) - _LENGTH * same.count(b"\n"))
        return b"\n".join([line[_LENGTH:] for line in lines.split(b"\n")])

    def _count(self, stamp: str, size: int) -> None:
        before = self.last[1] if self.last and self.last[0] == stamp else 0
        self.last = stamp, before + size

    def _new(self, stamp: str, piece: bytes, *, begins: bool) -> bytes:
        """The piece, as far as it was not read before."""
        new = piece
        if self._known:
            until, count = self._known
            if stamp == until:
                known = min(count - self._passed, len(piece))
                self._passed += known
                new = piece[known:]
            elif not self._passed and stamp < until:
                new = b""
            if not new:
                return b""
            self._known = None
        self._count(stamp, len(new))
        return stamp.encode() + b" " + new if self._shown and begins and new == piece else new
