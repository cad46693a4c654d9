"""A limit on how much may arrive within a time."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """Allows `most` at once, and `rate` more with each second, by the clock of the running loop."""

    def __init__(self, most: float, rate: float) -> None:
        self._most, self._rate = most, rate
        self._left, self._at = most, asyncio.get_running_loop().time()

    def take(self, amount: float) -> float:
        """Take this much. Returns by how many seconds that is too early, 0 if it is not."""
        now = asyncio.get_running_loop().time()
        self._left = min(self._most, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._left / self._rate)
