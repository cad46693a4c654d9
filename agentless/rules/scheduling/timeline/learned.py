"""The expected length of a task without a time limit, from earlier runs of its kind (`model/usage/run.Kind`).

It is only an estimate. It never ends a task, and never delays a task that was promised a certain time (see
`rules/scheduling/plan`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

RUNS = 20
"""The most recent successful runs of a kind that count."""
LEAST = 5
"""With fewer runs, there is no estimate."""
ALMOST_ALL = 0.95
"""The share of runs that took no longer than the estimate."""


def learned_length(seconds: Sequence[float]) -> float | None:
    """The seconds within which almost all recent runs ended. None if too few are known."""
    last = sorted(seconds[-RUNS:])
    if len(last) < LEAST:
        return None
    return max(1.0, last[math.ceil(ALMOST_ALL * len(last)) - 1])
