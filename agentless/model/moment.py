"""Parses and formats moments.

A date with a zone (RFC 3339, `2026-11-22T08:00+01:00`), or without one in local time (`2026-11-22 08:00`, or
`2026-11-22` for its midnight), an hour of the day that comes next (`18:30`), a time from now (`2h`), or `now`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from agentless.errors import UsageError
from agentless.model.units import format_duration, parse_duration

_HOUR = re.compile(r"[0-9]{1,2}:[0-9]{2}")


def parse_moment(text: str, now: float) -> float:
    """Unix seconds of `text`. Raises UsageError if it is invalid."""
    word = text.strip()
    try:
        return now if word == "now" else _date(word, now) if _is_date(word) else now + parse_duration(word)
    except (ValueError, OverflowError, UsageError):
        raise UsageError(
            f"{text!r} is not a time; use 2026-11-22T08:00 (local time), 2026-11-22T08:00Z, 2h (from now), or now"
        ) from None


def parse_past(text: str, now: float) -> float:
    """Unix seconds of a duration before `now`, or of a date."""
    try:
        return _date(text, now) if _is_date(text) else now - parse_duration(text)
    except (ValueError, OverflowError, UsageError):
        raise UsageError(f"{text!r}: use 10min, 2h or a date like 2026-05-01T12:00") from None


def parse_future(text: str, now: float) -> float:
    """Unix seconds of a future date, or of the next such hour of the day."""
    try:
        wanted = _date(text, now)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r}: use 18:30, 2026-05-01T18:30 or 2026-05-01T18:30Z") from None
    return check_future(wanted, now, text)


def check_future(wanted: float, now: float, text: str) -> float:
    """The moment itself. Raises UsageError, with its `text`, if it is in the past."""
    if wanted < now - 60:
        raise UsageError(f"{text!r} was {format_duration(now - wanted)} ago; use a time in the future")
    return wanted


def format_moment(seconds: float, precision: Literal["minutes", "seconds"] = "minutes") -> str:
    """Unix seconds in local time with its zone: `2026-11-22 08:00+01:00`, or `2026-11-22 08:00 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(" ", precision).replace("+00:00", " UTC")


def _is_date(text: str) -> bool:
    """Whether the text is a date or an hour. Dates have a `-` or a `T`, hours a colon, durations neither."""
    return "-" in text or "T" in text or ":" in text


def _date(text: str, now: float) -> float:
    if not _HOUR.fullmatch(text):
        return datetime.fromisoformat(re.sub(" UTC$", "Z", text)).timestamp()
    today = datetime.fromtimestamp(now, UTC).astimezone()
    wanted = datetime.fromisoformat(f"{today:%Y-%m-%d}T{text:0>5}")
    return (wanted if wanted.astimezone() > today else wanted + timedelta(days=1)).timestamp()
