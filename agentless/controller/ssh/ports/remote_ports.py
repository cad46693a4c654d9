"""Ports in a container that lead to the user's machine (`ssh -R`)."""

from __future__ import annotations

import asyncssh

from agentless.controller.nodes.login import Login
from agentless.controller.ssh.ports.accepted import Accepted, Opened
from agentless.errors import Refused

_ANY = {"": "127.0.0.1", "localhost": "127.0.0.1", "*": "0.0.0.0"}  # noqa: S104 - the user asks for it
"""Addresses of a port, as ssh asks for them."""


class RemotePort(asyncssh.SSHListener):
    """One port. Each connection to it is a channel to the client."""

    def __init__(self, connection: asyncssh.SSHServerConnection, host: str) -> None:
        super().__init__()
        self._connection = connection
        self._host = host
        self._port = 0
        self._accepted = Accepted(self._connect)

    @classmethod
    async def begin(cls, login: Login, connection: asyncssh.SSHServerConnection, host: str, port: int) -> RemotePort:
        """Listen in the container; raises Refused with the reason."""
        if not host.isprintable() or " " in host:
            raise Refused("no such host")
        listener = cls(connection, host)
        await listener._listen(login, port)
        return listener

    async def _listen(self, login: Login, port: int) -> None:
        self._port = port
        answer = await self._accepted.begin(login.listener(), f"{_ANY.get(self._host, self._host)} {port}")
        if not answer.isdigit():
            await self._accepted.wait_closed()
            raise Refused("the listening program in the container does not work")
        self._port = port or int(answer)

    def get_port(self) -> int:
        """The port that was chosen."""
        return self._port

    def close(self) -> None:
        """Stop listening, and close its connections."""
        self._accepted.close()

    async def wait_closed(self) -> None:
        """Wait until that is done."""
        await self._accepted.wait_closed()

    async def _connect(self) -> Opened:
        return await self._connection.open_connection(self._host, self._port, encoding=None)
