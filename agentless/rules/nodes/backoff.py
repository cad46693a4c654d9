"""When a node that could not be reached is tried again."""

from __future__ import annotations


def backoff(attempt: int, random: float) -> float:
    """Seconds to wait before connection try `attempt` (from 0): doubles from 0.5 s to 30 s at most.

    `random` in [0, 1) takes up to half of it away, so that a hundred nodes do not come back in one moment.
    """
    return min(30.0, 0.5 * 2.0 ** min(attempt, 10)) * (1.0 - random / 2)
