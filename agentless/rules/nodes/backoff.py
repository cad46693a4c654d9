"""The pause before an unreachable node is tried again."""

from __future__ import annotations


def backoff(attempt: int, random: float) -> float:
    """Seconds to wait before connection try `attempt` (from 0): doubles from 0.5 s to 30 s at most.

    `random` in [0, 1) shortens it by up to half, so that many nodes are not tried at the same moment.
    """
    return min(30.0, 0.5 * 2.0 ** min(attempt, 10)) * (1.0 - random / 2)
