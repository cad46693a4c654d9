"""Connections that a program in a container accepts and the user's machine gets; its template has the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import asyncssh

from agentless.controller.nodes.program import Program
from agentless.errors import AgentlessError, Refused
from agentless.model.text import printable
from agentless.remote.concurrency import cancel

CHUNK = 64 * 1024
LINE = 4096
"""Bytes of the first line."""
_HEADER = struct.Struct("!IBI")
_NEW, _DATA, _END, _CLOSED = range(4)
Opened = tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]


class Accepted:
    """Each connection is a channel to the client, which `connect` opens. `begin` says where it listens."""

    def __init__(self, connect: Callable[[], Awaitable[Opened]]) -> None:
        self._connect = connect
        self._stack = AsyncExitStack()
        self._seen = b""
        self._writers: dict[int, asyncio.Task[asyncssh.SSHWriter[bytes] | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    async def begin(self, program: AbstractAsyncContextManager[Program], where: str) -> str:
        """Have a program listen there; its answer. Raises Refused with the reason."""
        try:
            self._program = await self._stack.enter_async_context(program)
            await self._program.write(f"{where}\n".encode())
            while b"\n" not in self._seen:
                if not await self._more() or len(self._seen) > LINE:
                    reason = printable(self._seen[1:LINE].decode("utf-8", "replace"))
                    raise Refused(reason or "the listening program ended")
        except BaseException:
            await self._stack.aclose()
            raise
        line, _, self._seen = self._seen.partition(b"\n")
        self._begin(self._serve())
        return line[1:].decode("utf-8", "replace")

    def close(self) -> None:
        """Stop listening, and close its connections."""
        self._closing = self._closing or asyncio.create_task(self._end())

    async def wait_closed(self) -> None:
        """Wait until that is done."""
        self.close()
        if self._closing:
            await asyncio.wait([self._closing])

    async def _end(self) -> None:
        await cancel(*self._tasks)
        await self._stack.aclose()

    async def _serve(self) -> None:
        """Take what the container sends, until it ends or this is closed."""
        try:
            with contextlib.suppress(AgentlessError):
                while await self._has(_HEADER.size):
                    number, kind, size = _HEADER.unpack(self._seen[: _HEADER.size])
                    if size > CHUNK or not await self._has(_HEADER.size + size):
                        return
                    data = self._seen[_HEADER.size : _HEADER.size + size]
                    self._seen = self._seen[_HEADER.size + size :]
                    await self._take(number, kind, data)
        finally:
            self.close()

    async def _take(self, number: int, kind: int, data: bytes) -> None:
        if kind == _NEW:
            self._writers[number] = asyncio.create_task(self._open(number))
            return
        opening = self._writers.get(number)
        writer = await opening if opening else None
        if writer is None:
            return
        with contextlib.suppress(OSError):
            if kind == _DATA:
                writer.write(data)
                await writer.drain()
            elif kind == _END:
                writer.write_eof()
        if kind == _CLOSED:
            writer.close()
            self._writers.pop(number, None)

    async def _open(self, number: int) -> asyncssh.SSHWriter[bytes] | None:
        """A channel to the client for a new connection; None if it refuses."""
        try:
            reader, writer = await self._connect()
        except asyncssh.Error:
            await self._put(number, _CLOSED)
            return None
        self._begin(self._send(number, reader))
        return writer

    async def _send(self, number: int, reader: asyncssh.SSHReader[bytes]) -> None:
        """Pass on what the client sends."""
        with contextlib.suppress(OSError, asyncssh.Error, AgentlessError):
            while data := await reader.read(CHUNK):
                await self._put(number, _DATA, data)
            await self._put(number, _END)
            await reader.channel.wait_closed()
            self._writers.pop(number, None)
            await self._put(number, _CLOSED)

    async def _put(self, number: int, kind: int, data: bytes = b"") -> None:
        await self._program.write(_HEADER.pack(number, kind, len(data)) + data)

    async def _has(self, size: int) -> bool:
        while len(self._seen) < size:
            if not await self._more():
                return False
        return True

    async def _more(self) -> bool:
        chunk = await self._program.read()
        if chunk and chunk[0] == 1:
            self._seen += chunk[1]
        return chunk is not None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
