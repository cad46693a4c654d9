"""Moments as people write them.

A date with a zone (RFC 3339, `2026-11-22T08:00+01:00`), or without one in local time (`2026-11-22 08:00`, or
`2026-11-22` for its midnight), a time from now (`2h`), or `now`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from agentless.errors import UsageError
from agentless.model.units import parse_duration


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of `text`; raises UsageError for what is no moment."""
    word = text.strip()
    if word == "now":
        return now
    try:
        # A date has a minus sign or a T in it, and no duration has.
        return datetime.fromisoformat(word).timestamp() if "-" in word or "T" in word else now + parse_duration(word)
    except (ValueError, OverflowError, UsageError):
        raise UsageError(
            f"{text!r} is not a time; write 2026-11-22T08:00 (local time), 2026-11-22T08:00Z, 2h from now, or now"
        ) from None


def format_moment(seconds: float) -> str:
    """Unix seconds by the clock on the wall, to the minute: `2026-11-22 08:00`."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
