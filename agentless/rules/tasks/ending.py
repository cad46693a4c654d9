"""When a VPS is stopped: some time after its start, or after it was last used. It is warned first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentless.model.tasks.terms import Terms
from agentless.model.units import format_duration

LEAD = 900.0
"""Seconds between the warning and the stop, at most; a quarter of the time if that is shorter."""


@dataclass(frozen=True, slots=True)
class Ending:
    """When a VPS is stopped (Unix seconds), why, and how long before that it is warned."""

    at: float
    why: str
    lead: float

    def words(self, now: float) -> str:
        """`stops in 12m (--idle-stop 4h)`."""
        return f"stops in {format_duration(max(0.0, self.at - now))} ({self.why})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a VPS now, and since when it is warned (None: it is not)."""

    what: Literal["nothing", "warn", "stop", "go on"]
    warned_at: float | None = None


def ending_of(terms: Terms, started_at: float, idle_since: float | None) -> Ending | None:
    """The next end of a VPS. `idle_since` is when it was last used, None while it is in use, or if that is unknown."""
    found = []
    if terms.expires is not None:
        found.append(_ending(started_at, terms.expires, "--expires"))
    if terms.idle_stop is not None and idle_since is not None:
        found.append(_ending(idle_since, terms.idle_stop, "--idle-stop"))
    return min(found, key=lambda each: each.at, default=None)


def judge(ending: Ending | None, warned_at: float | None, now: float) -> Verdict:
    """What follows. It is never stopped sooner after its warning than it was told."""
    if ending is None or now < ending.at - ending.lead:
        return Verdict("nothing" if warned_at is None else "go on")
    if warned_at is None:
        return Verdict("warn", now)
    return Verdict("stop" if now >= max(ending.at, warned_at + ending.lead) else "nothing", warned_at)


def _ending(since: float, limit: float, option: str) -> Ending:
    return Ending(since + limit, f"{option} {format_duration(limit)}", min(LEAD, limit / 4))
