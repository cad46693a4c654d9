"""When a task may run, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """What the queue goes by. Times in seconds.

    A higher `priority` comes first. `time_limit` is how long it may run (None: nobody knows). `wait_for` is how long it
    may wait for its place: None for ever, 0 not at all.
    """

    priority: int = 0
    time_limit: float | None = None
    wait_for: float | None = None
