"""Nodes as a test sees them: from our side, and from the inside."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentless.controller import plugins
from agentless.errors import Unreachable
from agentless.model.nodes.node import NodeConfig
from agentless.ports import Transport
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from tests.real.transports.sshd import WAIT, Sshd, processes, until

LIBRARIES = ("asyncssh", "paramiko")
MB = 1_000_000


@dataclass
class Node:
    """A node to reach. Whatever is started there has `tag` in its environment."""

    config: NodeConfig
    files: SshFiles
    tag: str

    def transport(self) -> Transport:
        """A transport that is not yet connected."""
        return plugins.load("remote.transports", self.config.connection).make(self.config, self.files)

    def session(self) -> Session:
        """A session that is not yet connected."""
        return Session(self.transport(), self.config.name)

    def processes(self) -> dict[int, str]:
        """The command lines of all that we have started there, by pid."""
        return processes(self.tag)

    def runs(self, text: str) -> bool:
        """Whether one of them has this in it."""
        return any(text in line for line in self.processes().values())

    def but(self, **changes: Any) -> Node:
        """The same with other values in its files."""
        return replace(self, files=replace(self.files, **changes))


def node_of(server: Sshd, connection: str, **changes: Any) -> Node:
    """The server as a node, over this transport."""
    config = NodeConfig("node1", "127.0.0.1", port=server.port, connection=connection)
    files = SshFiles(server.home, server.home / "agentless_known_hosts", connect_timeout=WAIT)
    return Node(replace(config, **changes), files, server.tag)


@contextlib.asynccontextmanager
async def opened(node: Node):
    """A session with the node; at its end nothing of ours may be left there."""
    session = node.session()
    await session.connect()
    try:
        yield session
    finally:
        await session.close()
    await until(lambda: not node.processes(), lambda: f"left behind: {node.processes()}")


async def refusal(node: Node) -> Unreachable:
    """What connecting raises."""
    session = node.session()
    with pytest.raises(Unreachable) as caught:
        await session.connect()
    assert not session.connected
    return caught.value
