"""Streams from a node that several read at once: who asks for the same again gets it from the same session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Self

from agentless.errors import NoAnswer
from agentless.model.command import Command
from agentless.remote.streams import Stream

KEPT = 1 << 20
"""Bytes of a stream that are kept: from its beginning, for readers to come, later for those that read more slowly."""
OVERHEAD = 100
"""Bytes that a piece takes besides its own."""
SLOW = 5.0
"""Seconds that the readers of a stream wait for the slowest one."""


class SharedStreams:
    """The streams that are read from one node; `begin` starts one."""

    def __init__(self, begin: Callable[[Command], AbstractAsyncContextManager[Stream]]) -> None:
        self._begin = begin
        self._shared: dict[str, _Shared] = {}

    @contextlib.asynccontextmanager
    async def stream(self, command: Command, tail: int | None = None) -> AsyncIterator[Reader]:
        """As `Session.stream`, of a command whose output always begins the same, or with its last `tail` lines.

        A stream is shared as long as all of it is kept, and is no more than those lines.
        """
        key = command.text()
        shared = self._shared.get(key)
        if shared is None or not shared.is_whole(tail):
            shared = self._shared[key] = _Shared(self._begin(command))
        reader = Reader(shared)
        shared.readers.add(reader)
        try:
            await shared.begun()
            yield reader
        finally:
            shared.readers.discard(reader)
            if shared.readers:
                shared.trim()
            else:
                if self._shared.get(key) is shared:
                    del self._shared[key]
                await shared.close()


class Reader:
    """One reader of a stream: iterate for `(1 or 2, bytes)`; `exit_code` is known when it has ended."""

    def __init__(self, shared: _Shared) -> None:
        self.at = 0
        self.is_lost = False
        self._shared = shared

    @property
    def exit_code(self) -> int | None:
        """As `Stream.exit_code`."""
        return self._shared.exit_code

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        piece = await self._shared.piece(self)
        if piece is None:
            raise StopAsyncIteration
        return piece


class _Shared:
    """One stream, and what is kept of it: the pieces from number `_first` on."""

    def __init__(self, stream: AbstractAsyncContextManager[Stream]) -> None:
        self.readers: set[Reader] = set()
        self.exit_code: int | None = None
        self._pieces: dict[int, tuple[int, bytes]] = {}
        self._first = self._next = self._size = self._lines = 0
        self._has_begun = self._is_over = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._filling = asyncio.create_task(self._fill(stream))

    def is_whole(self, tail: int | None) -> bool:
        """Whether a new reader gets here what a stream of his own would bring."""
        return self._first == 0 and not self._is_over and (tail is None or self._lines < tail)

    async def begun(self) -> None:
        """Wait until it has begun; raises why it cannot."""
        while not self._has_begun and not self._is_over:
            await self._changed.wait()
        if not self._has_begun and self._error:
            raise self._error

    async def piece(self, reader: Reader) -> tuple[int, bytes] | None:
        """The next one for a reader, None at the end; raises what the stream raised."""
        while reader.at == self._next and not self._is_over:
            await self._changed.wait()
        if reader.is_lost:
            raise NoAnswer("reading the log too slowly while others follow it; retry")
        if reader.at == self._next:
            if self._error:
                raise self._error
            return None
        reader.at += 1
        piece = self._pieces[reader.at - 1]
        self.trim()
        return piece

    def trim(self) -> None:
        """Forget what is too much and nobody needs any more."""
        needed = min((reader.at for reader in self.readers if not reader.is_lost), default=self._next)
        while (self._size > KEPT or self._first) and self._first < needed:
            self._size -= len(self._pieces.pop(self._first)[1]) + OVERHEAD
            self._first += 1
            self._tell()

    async def close(self) -> None:
        """End it on the node."""
        self._filling.cancel()
        await asyncio.wait([self._filling])

    async def _fill(self, opening: AbstractAsyncContextManager[Stream]) -> None:
        try:
            async with opening as stream:
                self._has_begun = True
                self._tell()
                async for piece in stream:
                    self._pieces[self._next] = piece
                    self._next += 1
                    self._size += len(piece[1]) + OVERHEAD
                    self._lines += piece[1].count(b"\n")
                    self._tell()
                    self.trim()
                    await self._taken()
            self.exit_code = stream.exit_code
        except Exception as error:  # noqa: BLE001 - it is the readers' to raise
            self._error = error
        finally:
            self._is_over = True
            self._tell()

    async def _taken(self) -> None:
        """When there is too much, wait until the readers have taken half of it; who makes others wait long is lost."""
        while self._size > KEPT:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLOW if len(self.readers) > 1 else None):
                    while self._size > KEPT // 2:
                        await self._changed.wait()
                    return
            slowest = min((reader.at for reader in self.readers), default=self._next)
            for reader in self.readers:
                reader.is_lost |= reader.at == slowest
            self.trim()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
