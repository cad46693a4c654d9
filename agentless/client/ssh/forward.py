"""Ports of this machine that lead to ports in a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agentless.client.connection import Connector
from agentless.client.ssh.proxy import CHUNK, WITHIN, ask, check, greet
from agentless.errors import Refused
from agentless.model.tasks.port import Port
from agentless.paths import SSH_SOCKET

HOST = "localhost"
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


@dataclass(frozen=True)
class Listener:
    """A port of this machine that is taken; whoever connects waits until it is served."""

    port: Port
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        for each in self.sockets:
            each.close()


def listen(ports: Iterable[Port], words: str) -> list[Listener]:
    """Listen on loopback. Raises Refused if a port is taken; `words` is what to type before another one."""
    with contextlib.ExitStack() as stack:
        found = []
        for each in ports:
            found.append(_listen(each, words))
            stack.callback(found[-1].close)
        stack.pop_all()
        return found


def _listen(port: Port, words: str) -> Listener:
    opened: list[socket.socket] = []
    for family, address in _ADDRESSES:
        try:
            opened.append(socket.create_server((address, port.local), family=family))
        except OSError as error:
            if not opened:
                another = port.local + 1 if port.local < 65535 else 1024
                raise Refused(
                    f"cannot listen on port {port.local} of this machine ({os.strerror(error.errno or 0)}); choose "
                    f"another one: {words} {port.port}:{another}"
                ) from None
    return Listener(port, tuple(opened))


class Forward:
    """Serves listeners. Each connection reaches the task anew, whatever has happened to it meanwhile."""

    def __init__(self, state: Path, inventory: Path | None, task: str, tell: Callable[[str], None]) -> None:
        self._controller = Connector(state, inventory, SSH_SOCKET)
        self._task = task
        self._tell = tell
        self._said: str | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ends = False

    async def run(self, listeners: Iterable[Listener]) -> None:
        """Serve them until this is cancelled."""
        servers = [await self._serve(each, opened) for each in listeners for opened in each.sockets]
        try:
            await asyncio.Event().wait()
        finally:
            self._ends = True
            for server in servers:
                server.close()
            for writer in self._writers:
                writer.transport.abort()

    async def reach(self, port: int) -> socket.socket:
        """A connection with a port of the task; raises ConnectionError with the reason."""
        connection = await asyncio.to_thread(self._controller.connected)
        try:
            await asyncio.to_thread(greet, connection, self._task, port)
        except BaseException:  # cancelled: the thread must not wait on
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            raise
        return connection

    async def _serve(self, listener: Listener, opened: socket.socket) -> asyncio.Server:
        def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._ends:
                writer.transport.abort()
                return
            self._writers.add(writer)
            carrying = asyncio.create_task(self._attend(reader, writer, listener.port.port))
            self._carrying.add(carrying)
            carrying.add_done_callback(self._carrying.discard)

        return await asyncio.start_server(attend, sock=opened)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Carry one connection."""
        there: asyncio.StreamWriter | None = None
        sending: asyncio.Task[None] | None = None
        reached = False
        try:
            connection = await asyncio.to_thread(self._controller.connected)
            ask(connection, self._task, port)
            back, there = await asyncio.open_connection(sock=connection)
            sending = asyncio.create_task(_copy(reader, there))  # which need not wait for the answer
            try:
                check(await asyncio.wait_for(back.readline(), WITHIN))
            except TimeoutError:
                raise Refused(f"the controller has not answered for {WITHIN:g} s") from None
            reached, self._said = True, None
            await asyncio.gather(sending, _copy(back, writer))
        except Exception as error:  # noqa: BLE001 - this connection is over; the next one may work
            if not reached and self._said != str(error):
                self._said = str(error)
                self._tell(f"port {port}: {error}")
        finally:
            self._writers.discard(writer)
            if sending:
                sending.cancel()
                await asyncio.wait([sending])
            for each in filter(None, (writer, there)):
                each.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
