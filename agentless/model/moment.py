"""Moments in the past as people write them."""

from __future__ import annotations

from datetime import datetime

from agentless.errors import UsageError
from agentless.model.units import parse_duration


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of a duration before `now`, or of a date; a date without a zone is local time."""
    if "-" not in text and "T" not in text:
        return now - parse_duration(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(f"{text!r}: write 10min, 2h or a date like 2026-05-01T12:00") from None
