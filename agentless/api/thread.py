"""A thread for one awaited call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Self, TypeVar

from agentless.client.client import BREAKER, Breaker

T = TypeVar("T")


class Thread:
    """A thread for a `with` block. A request that is under way at its end is broken off, without waiting."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "agentless")
        self._breaker = Breaker()
        self._context = copy_context()
        self._context.run(BREAKER.set, self._breaker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._breaker.break_off()
        self._pool.shutdown(wait=False)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: self._context.run(work))
