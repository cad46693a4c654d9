"""Many connections with ports in a container through one program there; its template has the protocol.

A connection has a window: whoever reads slowly keeps that much of it waiting, and nothing of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections import deque

from agentless.controller.ssh.ports.warm import Taken
from agentless.errors import AgentlessError, Refused
from agentless.formats.frames import FrameDecoder, frame
from agentless.model.text import printable
from agentless.remote.concurrency import cancel

WINDOW = 1 << 19
"""Bytes of a connection that the other side may have without having taken them; the same number as in the template."""
CHUNK = 1 << 16
REASON = 4096
"""Bytes of a reason why a port cannot be reached."""
_OPEN, _DATA, _END, _CLOSED, _MORE = range(5)
_NUMBER = struct.Struct("!I")
_AT_ONCE = 8
"""Frames that are sent together."""


class Ended(Exception):
    """The program has ended without a word."""


class Carrier:
    """The program, which has printed that it carries connections."""

    def __init__(self, taken: Taken) -> None:
        self._taken = taken
        self._connections: dict[int, Carried] = {}
        self._numbers = itertools.count(1)
        self._frames: deque[bytes] = deque()
        self._waiting = asyncio.Event()
        self.ended = False
        self._sending = asyncio.create_task(self._send())
        self._receiving = asyncio.create_task(self._receive())

    def begin(self, host: str, port: int) -> Carried:
        """Begin to reach a port; raises Ended if the program has ended."""
        if self.ended:
            raise Ended
        number = next(self._numbers)
        connection = self._connections[number] = Carried(self, number)
        self.put(_OPEN, number, f"{host} {port}".encode())
        return connection

    async def close(self) -> None:
        """End the program, and all connections with it."""
        await cancel(self._receiving, self._sending)

    def put(self, kind: int, number: int, data: bytes = b"") -> None:
        """Send a frame. What waits to be sent is within the windows of the connections."""
        self._frames.append(frame(kind, _NUMBER.pack(number) + data))
        self._waiting.set()

    def leave(self, number: int) -> None:
        """Close a connection that is not needed any more."""
        if self._connections.pop(number, None):
            self.put(_CLOSED, number)

    async def _send(self) -> None:
        """Send the frames, each as a whole: nobody who leaves in the middle of one can break it off."""
        with contextlib.suppress(AgentlessError):  # the node has gone; so the output ends, too
            while True:
                await self._waiting.wait()
                self._waiting.clear()
                while self._frames:
                    await self._taken.program.write(self._some())

    def _some(self) -> bytes:
        frames: list[bytes] = []
        while self._frames and len(frames) < _AT_ONCE:
            frames.append(self._frames.popleft())
        return b"".join(frames)

    async def _receive(self) -> None:
        """Give each connection what comes for it. None of them is waited for."""
        decoder = FrameDecoder()
        try:
            while chunk := await self._taken.program.read():
                if chunk[0] == 1:
                    for kind, content in decoder.feed(chunk[1]):
                        self._take(kind, _NUMBER.unpack(content[:4])[0], content[4:])
        except (AgentlessError, struct.error):
            pass  # the node has gone, or this is not our program
        finally:
            self.ended = True
            self._sending.cancel()
            self._taken.end()
            for connection in self._connections.values():
                connection.lose()
            self._connections.clear()

    def _take(self, kind: int, number: int, data: bytes) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        if kind == _CLOSED:
            del self._connections[number]
        connection.take(kind, data)


class Carried:
    """One connection."""

    def __init__(self, carrier: Carrier, number: int) -> None:
        self._carrier = carrier
        self._number = number
        self._arrived: deque[bytes] = deque()
        self._unread = 0
        self._read = 0
        self._credit = WINDOW
        self._closed = False
        self._changed = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def opened(self) -> None:
        """Wait until the port is reached; raises Refused with the reason, and Ended if the program has ended."""
        await self._opened

    async def read(self) -> bytes:
        """What the port has sent; nothing at its end."""
        while not self._arrived and not self._closed:
            await self._wait()
        if not self._arrived:
            return b""
        data = self._arrived.popleft()
        self._unread -= len(data)
        self._read += len(data)
        if self._read >= WINDOW // 4 and not self._closed:
            read, self._read = self._read, 0
            self._carrier.put(_MORE, self._number, _NUMBER.pack(read))
        return data

    async def write(self, data: bytes) -> None:
        """Send; waits while the port does not take more."""
        rest = memoryview(data)
        while rest and not self._closed:
            if not self._credit:
                await self._wait()
                continue
            part = rest[: min(self._credit, CHUNK)]
            self._credit -= len(part)
            rest = rest[len(part) :]
            self._carrier.put(_DATA, self._number, bytes(part))

    async def write_eof(self) -> None:
        """Send no more."""
        if not self._closed:
            self._carrier.put(_END, self._number)

    def end(self) -> None:
        """Close it."""
        self._closed = True
        self._carrier.leave(self._number)

    def take(self, kind: int, data: bytes) -> None:
        """Take a frame. Raises struct.error for one that cannot be."""
        if kind == _DATA:
            self._unread += len(data)
            if self._unread + self._read > WINDOW:
                raise struct.error("more than its window")
            self._arrived.append(data)
        elif kind == _MORE:
            self._credit = min(WINDOW, self._credit + _NUMBER.unpack(data)[0])
        elif kind == _OPEN and not self._opened.done():
            self._opened.set_result(None)
        elif kind == _CLOSED:
            self._closed = True
            if not self._opened.done():
                reason = data[:REASON].decode("utf-8", "replace")
                self._opened.set_exception(Refused(printable(reason) or "refused"))
        self._changed.set()

    def lose(self) -> None:
        """The program has ended."""
        self._closed = True
        self._changed.set()
        if not self._opened.done():
            self._opened.set_exception(Ended())

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
