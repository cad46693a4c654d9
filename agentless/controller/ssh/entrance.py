"""Who comes to the SSH socket: a line says which container is meant, and then the bytes are those of SSH, or of a port.

The line is JSON: `{"host": "train", "owner": "anna"}`, and with `"port": 8888` it is that port. The answer is a line,
too: `+` or `-` and why not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentless.controller.guarded import guarded
from agentless.controller.nodes.login import Login
from agentless.controller.ssh.logins import Logins
from agentless.controller.ssh.ports.relays import Relay, Relays, SharedRelays
from agentless.controller.traffic import Traffic
from agentless.errors import AgentlessError, Refused, UsageError
from agentless.model.caller import Caller
from agentless.model.owner import check_owner
from agentless.model.text import printable
from agentless.remote.concurrency import cancel

LINE = 4096
"""Bytes of the line that names a container."""
PATIENCE = 10.0
"""Seconds in which it must have come."""
TYPING = 120.0
"""Seconds for proving a key, whose passphrase may have to be typed."""
CHUNK = 256 * 1024
HANG_UP = 2.0
"""Seconds between two looks at whether somebody who sends nothing any more is still there."""
KEY_EXCHANGES = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
_YES = b"+\n"
VERSION = "OpenSSH_compatible_agentless"
"""How the server names itself: only to one called OpenSSH do OpenSSH's clients say that they read no more output."""
WINDOW = 8 << 20
"""Bytes that a client may send before they are acknowledged: a copy is not slowed down by it."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """What somebody wants who comes: SSH to a host, or one of its ports."""

    host: str
    caller: Caller
    port: int | None


class Entrance:
    """Serves the user of this controller."""

    def __init__(self, state: Path, owner: str, logins: Logins, traffic: Traffic) -> None:
        self._state = state
        self._owner = Caller(owner)
        self._logins = logins
        self._traffic = traffic
        self._relays = SharedRelays()
        self._serving: set[asyncio.Task[None]] = set()
        self._key: Any = None

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until this is cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files: some are closed again
                    _log.warning("ssh: %s", error.strerror)
                    await asyncio.sleep(1.0)
                    continue
                task = asyncio.create_task(self._attend(connection))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
        finally:
            await cancel(*self._serving)
            await self._relays.close()

    async def _attend(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._traffic.begin()
        try:
            with guarded("an ssh connection"), contextlib.suppress(OSError, TimeoutError):
                await self._serve(connection)
        finally:
            self._traffic.end()
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        begun = False
        try:
            wish = self._read(await _line(connection))
            async with self._logins.log_in(wish.host, wish.caller) as login, self._relays.of(login) as relays:
                if wish.port and login.gate:
                    raise Refused(login.gate.no_port)
                if wish.port:
                    await _carry(connection, await relays.begin("localhost", wish.port))
                else:
                    await loop.sock_sendall(connection, _YES)
                    begun = True
                    await self._speak(connection, login, relays)
        except AgentlessError as error:
            if begun:
                raise
            await loop.sock_sendall(connection, f"-{printable(str(error))}\n".encode())

    def _read(self, line: bytes) -> Wish:
        try:
            wanted = orjson.loads(line)
            host, owner, port = str(wanted["host"]), wanted.get("owner"), wanted.get("port")
            if port is not None and not (type(port) is int and 0 < port < 65536):
                raise UsageError(f"no such port: {port}")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError("unexpected greeting; connect with: agentless ssh TASK") from None
        caller = Caller(check_owner(str(owner), "$AGENTLESS_OWNER")) if owner else self._owner
        return Wish(host, caller, port)

    async def _speak(self, connection: socket.socket, login: Login, relays: Relays) -> None:
        """The server's side of SSH, to its end."""
        import asyncssh  # noqa: PLC0415 - with what it needs for a server; most controllers never are one

        from agentless.controller.ssh import host_key  # noqa: PLC0415
        from agentless.controller.ssh.server import Server  # noqa: PLC0415
        from agentless.remote.packets import CIPHERS  # noqa: PLC0415

        logging.getLogger("asyncssh").setLevel(logging.ERROR)
        self._key = self._key or host_key.load(self._state)
        server = Server(login, relays)
        with contextlib.suppress(asyncssh.Error), contextlib.closing(server.visit):
            served = await asyncssh.run_server(
                connection,
                config=None,
                server_factory=lambda: server,
                server_host_keys=[self._key],
                kex_algs=KEY_EXCHANGES,
                encryption_algs=CIPHERS,
                compression_algs=None,
                line_editor=False,
                server_version=VERSION,
                window=WINDOW,
                login_timeout=TYPING if login.gate else PATIENCE,
            )
            await served.wait_closed()
        await server.close()


async def _line(connection: socket.socket) -> bytes:
    """The first line; what follows it stays unread."""
    loop, line = asyncio.get_running_loop(), b""
    async with asyncio.timeout(PATIENCE):
        while not line.endswith(b"\n") and len(line) < LINE:
            byte = await loop.sock_recv(connection, 1)
            if not byte:
                raise ConnectionResetError
            line += byte
            if byte != b"\n":
                with contextlib.suppress(BlockingIOError):
                    there = connection.recv(LINE - len(line), socket.MSG_PEEK)
                    line += connection.recv(there.find(b"\n") + 1 or len(there))
    return line


async def _carry(connection: socket.socket, relay: Relay) -> None:
    """Pass on both directions until the port or the user closes the connection; raises Refused if there is no port.

    What the user sends need not wait for the answer of the port.
    """
    sending = asyncio.create_task(_send(connection, relay))
    receiving: asyncio.Task[None] | None = None
    try:
        opening = asyncio.ensure_future(relay.opened())
        try:
            await asyncio.wait((sending, opening), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                sending.result()  # the user has left before there was an answer
            await opening
        finally:
            await cancel(opening)
        await asyncio.get_running_loop().sock_sendall(connection, _YES)
        receiving = asyncio.create_task(_receive(connection, relay))
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await cancel(*filter(None, (sending, receiving)))
        relay.end()


async def _send(connection: socket.socket, relay: Relay) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(connection, CHUNK):
        await relay.connection.write(data)
    await relay.connection.write_eof()
    # The other half may go on as long as there is anybody.
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    while not poll.poll(0):  # noqa: ASYNC110 - nobody else is told
        await asyncio.sleep(HANG_UP)
    raise ConnectionResetError


async def _receive(connection: socket.socket, relay: Relay) -> None:
    """Until the port closes; then there is nothing left to be sent to it either."""
    loop = asyncio.get_running_loop()
    while data := await relay.connection.read():
        await loop.sock_sendall(connection, data)
    raise ConnectionResetError
