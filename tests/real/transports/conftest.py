"""Nodes over every transport, and servers to break."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from agentless.model.nodes.node import NodeConfig
from agentless.remote.transports import SshFiles
from tests.real.transports.nodes import LIBRARIES, Node, node_of, opened
from tests.real.transports.sshd import PROGRAM, Sshd

SECOND = {"test_addresses", "test_certificates", "test_proxies", "test_security_keys", "test_two_jumps"}
"""Files of ways that are the same code for each library, but for its edge: the second library is slow there."""

LARGE = {
    "test_100_mb",
    "test_100_mb_of_stdin",
    "test_the_death_of_the_controller_ends_its_pipes",
    "test_the_death_of_the_controller_ends_its_streams",
    "test_after_the_death_of_the_controller_a_command_still_ends_in_its_time",
}
"""Tests that send much, or start a controller of their own: likewise."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The quick run tries them with the first library."""
    for item in items:
        if LIBRARIES[1] in item.name and (item.path.stem in SECOND or item.name.partition("[")[0] in LARGE):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch):
    """The agent of whoever runs the tests has no part in them."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """A server that no test breaks."""
    if not os.path.exists(PROGRAM):
        pytest.skip("no OpenSSH server on this machine")
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def start(shared_server, tmp_path):
    """Starts servers that may be broken."""
    servers = []

    def start(*options, **how):
        servers.append(Sshd(tmp_path / f"sshd{len(servers)}", *options, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=LIBRARIES)
def library(request):
    """The name of a transport over SSH."""
    return request.param


@pytest.fixture
def here(monkeypatch):
    """This machine as a node."""
    tag = f"AGENTLESS_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*tag.split("="))
    nowhere = Path("/nonexistent")
    return Node(NodeConfig("node1", "", connection="local"), SshFiles(nowhere, nowhere), tag)


@pytest.fixture(params=[*LIBRARIES, "local"])
def node(request):
    """A node over each transport."""
    if request.param == "local":
        return request.getfixturevalue("here")
    return node_of(request.getfixturevalue("shared_server"), request.param)


@pytest.fixture
async def session(node):
    """A session with it; at its end nothing of ours may be left there."""
    async with opened(node) as session:
        yield session


@pytest.fixture
def mark():
    """A duration that only one `sleep` in the world has."""
    return f"{uuid.uuid4().int % 10**6 + 10**6}.5"
