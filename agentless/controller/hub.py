"""News: every change, to whoever listens now, and to the history."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

BACKLOG = 1000
"""Events a listener may be behind; one that is slower is told `missed` once and goes on from the present."""

News = dict[str, Any]


class Hub:
    """Publishes values to any number of listeners; a slow one never holds up the others."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[News]] = set()

    def publish(self, news: News) -> None:
        """Hand `news` to all listeners."""
        for queue in self._listeners:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait({"kind": "missed"})
            queue.put_nowait(news)

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
