"""Queries for a part of a task's log, and cursors to resume reading."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from agentless.errors import UsageError

OVERLAP = 5.0
"""Seconds of a log that are requested again, since a node's clock may be set back."""

Stamp = tuple[str, int]
"""The latest time in a log, as the engine writes it, and how many bytes with this time were read."""

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far each stream of a log was read (None: nothing). Output before `floor` is complete in both streams."""

    out: Stamp | None = None
    err: Stamp | None = None
    floor: str | None = None

    @classmethod
    def at(cls, seconds: float) -> Self:
        """The position after all output before this time, by the node's clock."""
        stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z"
        return cls((stamp, 0), (stamp, 0))

    @property
    def since(self) -> float | None:
        """The time from which the log is needed to resume: Unix seconds by the node's clock, None for its beginning."""
        last = (self.out, self.err)
        reached = [min(stamp for stamp, _ in filter(None, last))] if all(last) else []
        found = [*reached, *filter(None, (self.floor,))]
        return _seconds(max(found)) - OVERLAP if found else None


@dataclass(frozen=True, slots=True)
class LogCursor:
    """How far a log was read: the try, and the bytes of its two streams that were `sent` since the begin of the query.

    `place` is the position by the engine's times, None if they are not exact.
    """

    task: str
    sent: tuple[int, int] = (0, 0)
    place: LogPosition | None = None

    def __str__(self) -> str:
        """An opaque line for clients."""
        place = self.place and (self.place.out, self.place.err, self.place.floor)
        return json.dumps([self.task, self.sent, place], separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse that line. Raises UsageError."""
        try:
            task, (out, err), place = json.loads(text)
            if not (isinstance(task, str) and _is_count(out) and _is_count(err)):
                raise ValueError
            if place is not None:
                place = LogPosition(_stamp(place[0]), _stamp(place[1]), _time(place[2]))
            return cls(task, (out, err), place)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            raise UsageError("not a position in a log; use one from a frame of kind 5") from None


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A part of a log: the last `tail` lines, from `since` on (Unix seconds), and whether to follow it.

    `resumable`: extra frames carry a cursor. With a `position`, reading resumes there.
    """

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
    resumable: bool = False
    position: LogCursor | None = None

    @property
    def place(self) -> LogPosition | None:
        """The position at which it resumes, by the engine's times."""
        return self.position.place if self.position else None


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(f"{stamp[:26]}+00:00").timestamp()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _time(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _STAMP.fullmatch(value):
        raise ValueError
    _seconds(value)
    return value


def _stamp(value: Any) -> Stamp | None:
    if value is None:
        return None
    time, count = _time(value[0]), value[1]
    if time is None or not _is_count(count):
        raise ValueError
    return time, count
