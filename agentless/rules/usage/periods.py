"""Divides a span of time into hours, days or weeks of local time."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Literal

from agentless.errors import UsageError

HOURS = 25 * 3600.0
"""Spans up to so many seconds are divided into hours."""
DAYS = 62 * 86400.0
"""Spans up to so many seconds are divided into days."""
LONGEST = 15 * 365 * 86400.0
"""The longest span in seconds: some 800 weeks."""


def period_of(begin: float, end: float) -> Literal["hour", "day", "week"]:
    """The period of a span."""
    return "hour" if end - begin <= HOURS else "day" if end - begin <= DAYS else "week"


def periods(begin: float, end: float) -> list[float]:
    """The edges of the periods of a span (Unix seconds), with its own ends. Raises UsageError for an invalid span."""
    if not 0 < end - begin <= LONGEST:
        raise UsageError("the period must end before now and be at most 15 years long; use 12h, 7d or a date")
    local, period, edges = datetime.fromtimestamp(begin, UTC).astimezone(), period_of(begin, end), [begin]
    if period == "hour":
        edge = begin - begin % 60 - 60 * local.minute + 3600
        while edge < end:
            edges.append(edge)
            edge += 3600
        return [*edges, end]
    days = 1 if period == "day" else 7
    day = local.date() + timedelta(days=days - (local.weekday() if period == "week" else 0))
    while (edge := datetime.combine(day, time()).timestamp()) < end:
        edges.append(edge)
        day += timedelta(days=days)
    return [*edges, end]
