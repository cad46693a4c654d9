"""News: every change, to whoever listens now, and to the history."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

BACKLOG = 1000
"""Events a listener may be behind; one that is slower is told `missed` once and goes on from the present."""

News = dict[str, Any]


class EventBus:
    """Publishes values to any number of listeners; a slow one never holds up the others."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[News]] = set()
        self._woken: list[asyncio.Event] = []

    def publish(self, news: News) -> None:
        """Hand `news` to all listeners."""
        for queue in self._listeners:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait({"kind": "missed"})
            queue.put_nowait(news)
        for event in self._woken:
            event.set()

    @contextlib.contextmanager
    def waking(self) -> Iterator[asyncio.Event]:
        """An event that is set at all news, for who only wants to know that there are some."""
        event = asyncio.Event()
        self._woken.append(event)
        try:
            yield event
        finally:
            self._woken.remove(event)

    async def until(self, is_so: Callable[[], object], within: float | None = None) -> None:
        """Wait until something is so, which is looked at after all news, or for `within` seconds."""
        with self.listen() as news, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not is_so():
                    await anext(news)

    @contextlib.contextmanager
    def listen(self) -> Iterator[AsyncIterator[News]]:
        """Everything that is published from now on."""
        queue: asyncio.Queue[News] = asyncio.Queue(BACKLOG + 2)
        self._listeners.add(queue)
        try:
            yield _drain(queue)
        finally:
            self._listeners.discard(queue)


async def _drain(queue: asyncio.Queue[News]) -> AsyncIterator[News]:
    while True:
        yield await queue.get()
