"""Pipes of child processes in the event loop, without asyncio's transports: those take a coroutine to make."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import IO

CHUNK = 65536


class Reader:
    """Reads a pipe as data comes and gives it to `on_data`; an empty one is its end, after which it is closed."""

    def __init__(self, pipe: IO[bytes], on_data: Callable[[bytes], None]) -> None:
        self._pipe, self._fd = pipe, pipe.fileno()
        self._on_data, self.ended = on_data, False
        os.set_blocking(self._fd, False)
        self.resume()

    def pause(self) -> None:
        """Leave what comes in the pipe, so that its writer waits."""
        if not self.ended:
            asyncio.get_running_loop().remove_reader(self._fd)

    def resume(self) -> None:
        """Read again."""
        if not self.ended:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def drain(self) -> None:
        """Read what is there now and close, whoever still holds the other end."""
        while not self.ended and self._read():
            pass
        self.close()

    def close(self) -> None:
        """Let go of the pipe; what is written from now on is lost."""
        if not self.ended:
            self.pause()
            self.ended = True
            self._pipe.close()

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that was hung up
            data = b""
        if not data:
            self.close()
        self._on_data(data)
        return bool(data)


class Writer:
    """Writes to a pipe what it is given; while the pipe is full, `pause` asks for no more, and `resume` for it."""

    def __init__(self, pipe: IO[bytes], pause: Callable[[], object], resume: Callable[[], object]) -> None:
        self._pipe, self._fd = pipe, pipe.fileno()
        self._pause, self._resume = pause, resume
        self._waiting = bytearray()
        self._full, self._eof, self._closed = False, False, False
        os.set_blocking(self._fd, False)

    def write(self, data: bytes) -> None:
        """Write, or keep for later. When nobody reads any more, it is lost."""
        if self._closed:
            return
        self._waiting += data
        if not self._full:
            self._flush()
        if self._waiting and not self._full:
            self._full = True
            asyncio.get_running_loop().add_writer(self._fd, self._flush)
            self._pause()

    def write_eof(self) -> None:
        """Close when all is written."""
        self._eof = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close now."""
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_writer(self._fd)
            self._pipe.close()

    def _flush(self) -> None:
        try:
            del self._waiting[: os.write(self._fd, self._waiting)]
        except BlockingIOError:
            return
        except OSError:  # nobody reads any more
            self._waiting.clear()
            self._eof = True
        if self._waiting:
            return
        if self._full:
            self._full = False
            asyncio.get_running_loop().remove_writer(self._fd)
            self._resume()  # which may write at once
        if self._eof and not self._waiting:
            self.close()


async def read(fd: int) -> bytes:
    """What has come into a pipe or a terminal that does not block; waits for it. Empty at its end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(fd)
        except OSError:  # a terminal that was hung up
            return b""


async def write(fd: int, data: bytes) -> None:
    """Put all of `data` into a pipe that does not block; waits while it is full. Raises BrokenPipeError."""
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            writable = loop.create_future()
            loop.add_writer(fd, writable.set_result, None)
            try:
                await writable
            finally:
                loop.remove_writer(fd)
