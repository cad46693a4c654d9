"""Changes that the event stream of a node has named and that wait to be looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from agentless.controller.nodes.link.limits import INSPECTED

SETTLE = 0.25
"""Seconds for which a start alone is not looked at: it says little that the launch has not, and its end may come."""


class PendingChanges:
    """What the stream of events has named and nobody has looked at yet."""

    def __init__(self) -> None:
        self._pending: dict[str, None] = {}
        self._news, self._urgent, self._taken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ended = False

    async def put(self, change: str, *, at_once: bool = True) -> None:
        """One more; waits while there are many."""
        while len(self._pending) >= INSPECTED:
            self._taken.clear()
            await self._taken.wait()
        self._pending[change] = None
        self._news.set()
        if at_once:
            self._urgent.set()

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        self._news.set()
        self._urgent.set()

    async def take(self) -> Collection[str]:
        """Those that there are, once there are some; none when there will be no more."""
        await self._news.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE):
                await self._urgent.wait()
        found, self._pending = self._pending, {}
        self._taken.set()
        if not self._ended:
            self._news.clear()
            self._urgent.clear()
        return found
