"""Times as engines write them."""

from __future__ import annotations

import re
from datetime import datetime

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def seconds(text: object) -> float | None:
    """Unix seconds of the engine's RFC 3339 time; its zero time (year 1) means never."""
    match = _RFC3339.fullmatch(str(text))
    if match is None or match[1].startswith("0001"):
        return None
    fraction = float(f"0.{match[2]}") if match[2] else 0.0
    return datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00")).timestamp() + fraction
