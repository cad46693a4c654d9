"""How long a task will take of which nobody has said it: as long as those of its kind took (`model/usage/run.Kind`).

What is learned is never certain. It ends no task, and delays nobody who was promised a certain time: see
`rules/scheduling/plan`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

RUNS = 20
"""So many of the last runs of a kind that came to a good end are looked at."""
LEAST = 5
"""With fewer runs nothing is learned."""
ALMOST_ALL = 0.95
"""The part of the runs that took no longer than what is learned."""


def learned_length(seconds: Sequence[float]) -> float | None:
    """The seconds within which almost all of the last runs were over, None as long as too few are known."""
    last = sorted(seconds[-RUNS:])
    if len(last) < LEAST:
        return None
    return max(1.0, last[math.ceil(ALMOST_ALL * len(last)) - 1])
