"""Times as engines write them."""

from __future__ import annotations

import re
from datetime import datetime

CLOCKS_AGREE = 1.0
"""Seconds by which a node's clock may differ from ours before its times are corrected."""

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def seconds(text: object) -> float | None:
    """Unix seconds of the engine's RFC 3339 time; its zero time (year 1) means never."""
    match = _RFC3339.fullmatch(str(text))
    if match is None or match[1].startswith("0001"):
        return None
    fraction = float(f"0.{match[2]}") if match[2] else 0.0
    return datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00")).timestamp() + fraction


def ahead(clock: float | None, asked: float, answered: float) -> float:
    """By how much a clock that was read between two moments of ours is ahead; 0 when it may well agree."""
    if clock is None or asked - CLOCKS_AGREE <= clock <= answered + CLOCKS_AGREE:
        return 0.0
    return clock - (asked + answered) / 2
