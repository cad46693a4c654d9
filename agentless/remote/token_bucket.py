"""A limit on how much may come within a time."""

from __future__ import annotations

import asyncio


class TokenBucket:
    """How much may come: `most` at once, and `rate` more with each second. Time is that of the running loop."""

    def __init__(self, most: float, rate: float) -> None:
        self._most, self._rate = most, rate
        self._left, self._at = most, asyncio.get_running_loop().time()

    def take(self, amount: float) -> float:
        """Take so much of it; the seconds that it is too early for that, 0 when it is not."""
        now = asyncio.get_running_loop().time()
        self._left = min(self._most, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._left / self._rate)
