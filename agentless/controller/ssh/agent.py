"""The user's SSH agent in a container (`ssh -A`): a socket that leads to it, for as long as the connection lasts."""

from __future__ import annotations

from functools import partial
from typing import cast

import asyncssh
from asyncssh.stream import SSHUNIXStreamSession

from agentless.controller.nodes.login import Login
from agentless.controller.ssh.ports.accepted import Accepted, Opened
from agentless.errors import Refused


class AgentSocket:
    """The socket. `path` is where it is in the container."""

    def __init__(self, accepted: Accepted, path: str) -> None:
        self.path = path
        self.wait_closed = accepted.wait_closed

    @classmethod
    async def begin(cls, login: Login, connection: asyncssh.SSHServerConnection) -> AgentSocket:
        """Make it; raises Refused with the reason."""
        accepted = Accepted(partial(_connect, connection))
        path = await accepted.begin(login.listener(), "agent")
        if not path.startswith("/") or not path.isprintable():
            await accepted.wait_closed()
            raise Refused("the listening program in the container does not work")
        return cls(accepted, path)


async def _connect(connection: asyncssh.SSHServerConnection) -> Opened:
    """Reach the user's agent. The library's own way wants a socket on this machine first."""
    channel = connection.create_agent_channel()
    session = cast(SSHUNIXStreamSession[bytes], await channel.open(SSHUNIXStreamSession))
    return asyncssh.SSHReader(session, channel), asyncssh.SSHWriter(session, channel)
