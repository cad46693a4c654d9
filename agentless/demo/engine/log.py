"""What a container printed: lines with stream and time, as Docker's json-file log has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from agentless.demo.clock import NodeClock

LIMIT = 16 << 20
"""Bytes that are kept of one container; the oldest lines go first. Docker itself keeps all."""

_LONGEST = 16384  # bytes of a line that has not ended, before they are taken as one; the same in Docker


class Line(NamedTuple):
    """When it came (Unix ns), its stream (1 or 2), and its bytes, newline included if it had one."""

    time: int
    stream: int
    data: bytes


class Log:
    """Lines in the order of their coming. `close` says that none will follow, `reopen` that more will all the same."""

    def __init__(self, clock: NodeClock) -> None:
        self._clock = clock
        self._lines: list[Line] = []
        self._dropped, self._size = 0, 0
        self._rest = {1: b"", 2: b""}
        self._closed = False
        self._readers: set[asyncio.Future[None]] = set()

    def feed(self, stream: int, data: bytes) -> None:
        """Add output; an incomplete line waits for its end."""
        *whole, rest = (self._rest[stream] + data).split(b"\n")
        for line in whole:
            self._add(stream, line + b"\n")
        while len(rest) >= _LONGEST:
            self._add(stream, rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest[stream] = rest
        self._wake()

    def close(self) -> None:
        """Add incomplete lines, and end the readers that follow."""
        for stream, rest in self._rest.items():
            if rest:
                self._add(stream, rest)
        self._rest = {1: b"", 2: b""}
        self._closed = True
        self._wake()

    def reopen(self) -> None:
        """Accept more lines: the container was started again."""
        self._closed = False

    async def read(self, tail: int | None, since: int, follow: bool) -> AsyncIterator[list[Line]]:
        """What is there (the last `tail` lines of it), not older than `since` (ns), then what comes, in batches."""
        at = self._dropped + (max(0, len(self._lines) - tail) if tail is not None else 0)
        while True:
            batch = self._lines[max(0, at - self._dropped) :]
            at = self._dropped + len(self._lines)
            if batch:
                yield [line for line in batch if line.time >= since]
            if not follow or (self._closed and not batch):
                return
            if not batch:
                await self._more()

    async def _more(self) -> None:
        ready = asyncio.get_running_loop().create_future()
        self._readers.add(ready)
        try:
            await ready
        finally:
            self._readers.discard(ready)

    def _wake(self) -> None:
        for ready in self._readers:
            if not ready.done():
                ready.set_result(None)

    def _add(self, stream: int, data: bytes) -> None:
        self._lines.append(Line(self._clock.now(), stream, data))
        self._size += len(data)
        if self._size > LIMIT:
            half = len(self._lines) // 2 + 1
            self._size -= sum(len(line.data) for line in self._lines[:half])
            del self._lines[:half]
            self._dropped += half
