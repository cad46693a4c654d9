"""Which part of a task's log is wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which part of a log: the last `tail` lines, `since` Unix seconds, and whether to stay for more."""

    follow: bool = False
    tail: int | None = None
    since: float | None = None
    timestamps: bool = False
