"""The two directions of a shell: callbacks of an event loop as awaitable calls."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque

HIGH_WATER = 512 * 1024
"""Bytes that may wait for the reader before the sender is paused."""


class Flow:
    """What has arrived, in order, and whether more may be sent. The callbacks of a subclass feed it."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._paused = False
        self._over = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._may_send = asyncio.Event()
        self._may_send.set()

    @abstractmethod
    def hold(self, paused: bool) -> None:
        """Pause or resume the sender."""

    def feed(self, fd: int, data: bytes) -> None:
        """Some bytes have arrived."""
        self._chunks.append((fd, data))
        self._size += len(data)
        self._news.set()
        if self._size > HIGH_WATER and not self._paused:
            self._paused = True
            self.hold(True)

    def finish(self, error: Exception | None = None) -> None:
        """Nothing more will arrive: it has ended, or broken with an `error`. Only the first call counts."""
        if not self._over:
            self._over, self._error = True, error
        self._news.set()
        self._may_send.set()

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        fd, data = self._chunks.popleft()
        self._size -= len(data)
        if self._paused and self._size <= HIGH_WATER // 2:
            self._go_on()
        return fd, data

    def _go_on(self) -> None:
        """Resume the sender.

        What asyncssh has kept meanwhile comes at once, a window of it at most. It is taken in whole: asyncssh lets the
        node send a whole window more for the first of it, so that what is left in its buffer would only ever grow.
        """
        self.hold(False)
        self._paused = self._size > HIGH_WATER
        if self._paused:
            self.hold(True)

    def pause_writing(self) -> None:
        """Called by the event loop or the library: too much waits to be sent."""
        if not self._over:
            self._may_send.clear()

    def resume_writing(self) -> None:
        """Called by the event loop or the library: more may be sent."""
        self._may_send.set()

    async def may_send(self) -> None:
        """Wait until more may be sent, or never will be."""
        await self._may_send.wait()
