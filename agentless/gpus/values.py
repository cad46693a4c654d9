"""Numbers that drivers print: what is above these bounds is no reading.

Today's largest GPUs have less than a tenth of that memory and power.
"""

from __future__ import annotations

import re

MIB = 4 << 20
CELSIUS = 200
WATTS = 20_000
MHZ = 100_000

WHOLE = re.compile(r"[0-9]{1,18}")


def whole(text: str, most: int | None = None) -> int | None:
    """The number in a text; None for none, and for one above `most`, which no GPU has: it is not known then."""
    value = int(text) if WHOLE.fullmatch(text) else None
    return None if value is None or (most is not None and value > most) else value
