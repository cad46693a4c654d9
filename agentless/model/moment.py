"""Moments as people write them, in the past and to come."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from agentless.errors import UsageError
from agentless.model.units import format_duration, parse_duration


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of a duration before `now`, or of a date; a date without a zone is local time."""
    if "-" not in text and "T" not in text:
        return now - parse_duration(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(f"{text!r}: write 10min, 2h or a date like 2026-05-01T12:00") from None


def parse_future(text: str, now: float) -> float:
    """Unix seconds of a date, or of an hour of the day, that is to come; without a zone it is local time."""
    today = datetime.fromtimestamp(now, UTC).astimezone()
    try:
        if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text):
            wanted = datetime.fromisoformat(f"{today:%Y-%m-%d}T{text:0>5}")
            wanted = (wanted if wanted.astimezone() > today else wanted + timedelta(days=1)).astimezone()
        else:
            wanted = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r}: write 18:30, 2026-05-01T18:30 or 2026-05-01T18:30Z") from None
    return check_future(wanted.timestamp(), now, text)


def check_future(wanted: float, now: float, text: str) -> float:
    """The moment itself; raises UsageError, with its `text`, when it is over."""
    if wanted < now - 60:
        raise UsageError(f"{text!r} is over since {format_duration(now - wanted)}")
    return wanted
