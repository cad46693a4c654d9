"""The server's side of one SSH connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from agentless.controller.nodes.login import Login
from agentless.controller.ssh.agent import AgentSocket
from agentless.controller.ssh.channel import CHUNK, Channel, ServerChannel
from agentless.controller.ssh.ports.relays import Relay, Relays
from agentless.controller.ssh.ports.remote_ports import RemotePort
from agentless.controller.ssh.proof import Proof
from agentless.controller.ssh.visit import Visit
from agentless.errors import AgentlessError
from agentless.remote.concurrency import cancel


class Server(Proof):
    """Leads channels to programs in a container."""

    def __init__(self, login: Login, relays: Relays) -> None:
        super().__init__(login)
        self.visit = Visit(login.tell)
        self._relays = relays
        self._ports: set[asyncio.Task[RemotePort]] = set()
        self._agent: asyncio.Task[AgentSocket] | None = None

    def auth_completed(self) -> None:
        """Count it as a login from now on."""
        self.visit.begin()

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], asyncssh.SSHServerSession[bytes]]:
        """Begin a channel for a program."""
        channel = self._connection.create_server_channel(encoding=None)
        channel.__class__ = ServerChannel  # asyncssh has no way to say which class it is to be
        return channel, Channel(self._login, self)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        """Connect with a port as seen from within the container."""
        del orig_host, orig_port
        self.visit.asks("ports")
        return self._connect(dest_host, dest_port)

    async def server_requested(self, listen_host: str, listen_port: int) -> asyncssh.SSHListener | bool:
        """Listen in the container, and pass each connection on to the client."""
        self.visit.asks("ports")
        beginning = asyncio.create_task(RemotePort.begin(self._login, self._connection, listen_host, listen_port))
        self._ports.add(beginning)
        try:
            return await asyncio.shield(beginning)
        except AgentlessError as error:
            self._connection.send_debug(f"agentless: {error}", always_display=True)
            return False

    async def close(self) -> None:
        """End what listens in the container, also what has only begun to when the client left."""
        begun = (*self._ports, *([self._agent] if self._agent else []))
        for found in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(found, (RemotePort, AgentSocket)):
                await found.wait_closed()

    async def agent(self) -> str:
        """The path of a socket in the container that leads to the user's agent; raises what its start raises."""
        self.visit.asks("agent")
        self._agent = self._agent or asyncio.create_task(AgentSocket.begin(self._login, self._connection))
        return (await asyncio.shield(self._agent)).path

    async def settled(self) -> None:
        """Wait until all ports that were asked for listen: what the client starts may connect with them at once."""
        if self._ports:
            await asyncio.wait(self._ports)

    async def _connect(self, host: str, port: int) -> asyncssh.SSHTCPSession[bytes]:
        try:
            relay = await self._relays.connect(host, port)
        except AgentlessError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return SSHTCPStreamSession(lambda reader, writer: _carry(relay, reader, writer))


async def _carry(relay: Relay, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
    """Pass on both directions until the port or the user closes the connection."""
    sending = asyncio.create_task(_send(relay, reader))
    receiving = asyncio.create_task(_receive(relay, writer))
    left = asyncio.create_task(writer.channel.wait_closed())
    try:
        await asyncio.wait((receiving, left), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(sending, receiving, left)
        relay.end()
        writer.close()


async def _send(relay: Relay, reader: asyncssh.SSHReader[bytes]) -> None:
    while data := await reader.read(CHUNK):
        await relay.connection.write(data)
    await relay.connection.write_eof()


async def _receive(relay: Relay, writer: asyncssh.SSHWriter[bytes]) -> None:
    with contextlib.suppress(OSError, AgentlessError):  # the user has left, or the node
        while data := await relay.connection.read():
            writer.write(data)
            await writer.drain()
