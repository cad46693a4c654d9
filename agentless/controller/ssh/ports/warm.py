"""Programs in a container of which some are always ready to be used next.

To start a program takes as long as the engine needs, which a browser or a copy of many files would wait for each time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

from agentless.controller.nodes.program import Program
from agentless.errors import AgentlessError
from agentless.remote.concurrency import cancel


@dataclass(frozen=True)
class Taken:
    """A running program, and what ends it."""

    program: Program
    end: Callable[[], object]


class Warm:
    """Starts programs of one kind. After the first one, `spares` others wait."""

    def __init__(self, start: Callable[[], AbstractAsyncContextManager[Program]], spares: int) -> None:
        self._start = start
        self._most = spares
        self._spares: deque[asyncio.Future[Taken]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def take(self) -> Taken:
        """A program, to be ended by who takes it. Raises what its start raises."""
        spare = self._spares.popleft() if self._spares else None
        try:
            taken = await (spare or self._begin())
        except AgentlessError:
            if spare is None:
                raise
            taken = await self._begin()  # the spare may have failed long ago
        self._spares = deque(each for each in self._spares if not _has_failed(each))
        while len(self._spares) < self._most:
            self._spares.append(asyncio.create_task(self._begin()))
        return taken

    def keep(self, taken: Taken) -> None:
        """Have one ready that was started elsewhere."""
        spare = asyncio.get_running_loop().create_future()
        spare.set_result(taken)
        self._spares.append(spare)

    async def close(self) -> None:
        """End all of them."""
        await cancel(*self._spares, *self._running)

    async def _begin(self) -> Taken:
        begun: asyncio.Future[Program] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(self._run(begun))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return Taken(await begun, running.cancel)
        except BaseException:
            running.cancel()
            raise

    async def _run(self, begun: asyncio.Future[Program]) -> None:
        """Keep one running until it is cancelled."""
        async with AsyncExitStack() as stack:
            try:
                program = await stack.enter_async_context(self._start())
            except AgentlessError as error:
                if not begun.cancelled():
                    begun.set_exception(error)
                return
            if not begun.cancelled():
                begun.set_result(program)
                await asyncio.Event().wait()


def _has_failed(spare: asyncio.Future[Taken]) -> bool:
    """Whether it could not be started; nobody else asks, so that it is no surprise to asyncio."""
    return spare.done() and (spare.cancelled() or spare.exception() is not None)
