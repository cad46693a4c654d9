"""The link of a controller to a node whose SSH server gives it little, or drops it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentless.controller.clock import SystemClock
from agentless.controller.nodes import node_link
from agentless.controller.nodes.link import connection, sampler
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.node_link import NodeLink
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Command
from agentless.model.containers.signature import Signer
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine, systemd_engine
from tests.listener import Listener
from tests.real.transports.nodes import node_of
from tests.real.transports.relay import relayed
from tests.real.transports.sshd import WAIT, until


@contextlib.asynccontextmanager
async def linked(node):
    """A link that is kept to a node, and all that was heard of it: why it cannot be reached, None where it can."""
    heard = []
    parts = node.config, Renderer([template_dir()]), Signer("here", b"")
    link = NodeLink(
        node.config,
        node.session(),
        Nvidia(),
        NodeEngines(docker_engine(*parts), systemd_engine(*parts)),
        parts[1],
        SystemClock(),
        Listener(lambda link: heard.append(link.observation.error)),
    )
    link.start()
    async with asyncio.timeout(3 * WAIT):
        try:
            yield link, heard
        finally:
            await link.close()


@pytest.fixture
def tries(monkeypatch):
    """How often in a row the link has been tried, each time that it waits; it does not wait for long."""
    tries = []
    monkeypatch.setattr(connection, "backoff", lambda attempt, _: tries.append(attempt) or 0.01)
    return tries


@pytest.mark.parametrize(("held", "expected"), [(30.0, [0, 1, 2, 3]), (0.0, [0, 0, 0, 0])])
async def test_a_server_that_drops_us_after_the_login_is_tried_ever_more_rarely(
    start, tries, monkeypatch, held, expected
):
    """Unless the link has held for a while."""
    monkeypatch.setattr(connection, "HELD", held)
    server = start()
    async with linked(node_of(server, "asyncssh")) as (link, heard):
        for number in range(1, 5):
            await link.answered.wait()
            link.answered.clear()
            server.break_connections()
            await until(lambda number=number: len(tries) == number)
            link.answered.clear()
    assert tries == expected
    assert "node1 closed the connection" in heard


async def test_a_server_of_one_connection_and_one_session_is_sampled_by_commands(start, tries, monkeypatch):
    monkeypatch.setattr(sampler, "SAMPLE_EVERY", 0.1)
    monkeypatch.setattr(node_link, "RELAYED", 0.1)
    server = start("MaxSessions 1")
    async with relayed(server, connections=1) as port, linked(node_of(server, "asyncssh", port=port)) as (link, heard):
        await until(lambda: link.session.sessions and link.session.sessions.total == 1)
        before = len(heard)
        await until(lambda: len(heard) > before + 5)
        assert set(heard) == {None}
        assert not tries


async def test_a_server_of_one_connection_and_two_sessions_leaves_one_to_users(start, monkeypatch):
    monkeypatch.setattr(node_link, "RELAYED", 0.1)
    server = start("MaxSessions 2")
    async with relayed(server, connections=1) as port, linked(node_of(server, "asyncssh", port=port)) as (link, heard):
        await link.answered.wait()
        for word in (b"one\n", b"two\n"):
            async with link.stream(Command(f"echo {word.decode()}")) as stream:
                assert await anext(stream) == (1, word)
        assert set(heard) == {None}
