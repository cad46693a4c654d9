"""A terminal on a node, over every transport, on simulated nodes; `tests/real/transports` has the same on real ones."""

from __future__ import annotations

import pytest

from agentless.controller import plugins
from agentless.inventory.inventory import load
from agentless.model.nodes.node import NodeConfig
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from tests.terminals import *  # noqa: F403 - the tests


@pytest.fixture(params=["asyncssh", "paramiko", "local"])
async def session(request, fleet, tmp_path):
    config = load(fleet.inventory).nodes["n1"]
    node = NodeConfig("n1", config.host, port=config.port, user=config.user, identity_file=config.identity_file)
    transport = plugins.load("remote.transports", request.param).make(node, SshFiles(tmp_path, fleet.known_hosts))
    session = Session(transport, "n1")
    await session.connect()
    yield session
    await session.close()
