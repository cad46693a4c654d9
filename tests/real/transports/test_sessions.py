"""How many sessions a server allows on a connection, and what is made of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from agentless.errors import NoSession
from agentless.model.command import Command
from agentless.model.terminal import Size
from agentless.remote.transports import _pool
from tests.real.transports.nodes import node_of, opened
from tests.real.transports.relay import relayed
from tests.real.transports.sshd import WAIT, until

SIZE = Size(80, 24)


@contextlib.asynccontextmanager
async def streams(session, number, script="echo up; sleep 1000", **how):
    """So many streams of a user that go on."""

    async def up():
        stream = await stack.enter_async_context(session.stream(Command(script), **how))
        assert await anext(stream) == (1, b"up\n")

    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.timeout(3 * WAIT):
            await asyncio.gather(*(up() for _ in range(number)))
        yield stack


async def test_33_users_and_the_controller_on_a_stock_server(start, library):
    server = start()
    async with opened(node_of(server, library)) as session, contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(streams(session, 1, own=True, wait=False))
        await stack.enter_async_context(streams(session, 32))
        await stack.enter_async_context(session.terminal(Command("sleep 1000"), SIZE))
        async with asyncio.timeout(WAIT):
            results = await asyncio.gather(*(session.run(Command(f"sleep 0.2; echo {n}")) for n in range(8)))
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]
        assert len(server.connections()) == _pool.CONNECTIONS
        assert (session.sessions.each, session.sessions.total) == (10, 40)


async def test_users_cannot_take_what_is_kept_for_the_controller(start, library, monkeypatch):
    monkeypatch.setattr(_pool, "WAIT", 0.5)
    async with opened(node_of(start("MaxSessions 4"), library)) as session:
        async with streams(session, 1, own=True), streams(session, 16 - _pool.KEPT):
            with pytest.raises(NoSession, match=r"node1 has no free SSH session: logs, shells and copies use 10"):
                async with session.stream(Command("true")):
                    pass
            async with streams(session, 1, own=True, wait=False):
                assert (await session.run(Command("echo goes on"))).stdout == b"goes on\n"
        assert session.connected


async def test_who_finds_no_free_session_waits_for_one(start, library):
    async with opened(node_of(start("MaxSessions 1"), library)) as session, streams(session, 1) as first:
        waiting = asyncio.create_task(last_line(session))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.aclose()
        assert await asyncio.wait_for(waiting, WAIT) == b"mine\n"


async def last_line(session):
    async with session.terminal(Command("echo mine"), SIZE) as terminal:
        return (await terminal.read())[1].replace(b"\r", b"")


@pytest.mark.parametrize("allowed", [1, 2])
async def test_commands_events_samples_and_a_user_on_a_server_with_few_sessions(start, library, allowed):
    async with opened(node_of(start(f"MaxSessions {allowed}"), library)) as session:
        assert (await session.run(Command("echo one"))).ok
        async with streams(session, 2, own=True, wait=False), streams(session, 1):
            results = await asyncio.gather(*(session.run(Command(f"echo {n}")) for n in range(8)))
            assert [result.stdout for result in results] == [b"%d\n" % n for n in range(8)]


async def test_a_server_of_one_connection_and_one_session_runs_commands_in_turn(start, library):
    server = start("MaxSessions 1")
    async with relayed(server, connections=1) as port, opened(node_of(server, library, port=port)) as session:
        assert (await session.run(Command("echo one"))).ok
        for own in (True, False):
            with pytest.raises(NoSession, match="node1 allows 1 SSH session, and the controller needs it; raise MaxS"):
                async with session.stream(Command("true"), own=own, wait=False):
                    pass
        results = await asyncio.gather(*(session.run(Command(f"echo {n}")) for n in range(5)))
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(5)]
        assert session.connected


async def test_a_server_that_allows_no_session_says_so(start, library):
    async with opened(node_of(start("MaxSessions 0"), library)) as session:
        with pytest.raises(NoSession, match=r"node1 cannot open an SSH session .* raise MaxSessions"):
            await session.run(Command("true"))


async def test_a_further_connection_that_breaks_is_not_the_end_of_the_first(start, library):
    server = start("MaxSessions 1")
    async with opened(node_of(server, library)) as session:
        assert (await session.run(Command("echo one"))).ok
        first = server.connections()
        async with streams(session, 1):
            assert len(server.connections()) == 2
            server.break_connections(but=first)
            await until(lambda: server.connections() == first)
        assert (await session.run(Command("echo two"))).stdout == b"two\n"
        assert session.connected


async def test_a_further_connection_that_nobody_uses_is_closed(start, library, monkeypatch):
    monkeypatch.setattr(_pool, "IDLE", 0.1)
    server = start("MaxSessions 1")
    async with opened(node_of(server, library)) as session:
        assert (await session.run(Command("true"))).ok
        async with streams(session, 2, own=True):
            assert len(server.connections()) == 3
        await until(lambda: len(server.connections()) == 1)
        assert session.sessions.connections == 1


async def test_further_connections_share_the_jump_host(start, library):
    jump, target = start(), start("MaxSessions 1")
    jump.known_hosts.write_text(jump.known_hosts.read_text() + target.known_hosts.read_text())
    target.authorized_keys.write_text(jump.key.with_name("id_ed25519.pub").read_text())
    node = replace(node_of(jump, library, port=target.port, jump=f"127.0.0.1:{jump.port}"), tag=target.tag)
    async with opened(node) as session, streams(session, 2, own=True):
        assert (len(jump.connections()), len(target.connections())) == (1, 2)
    await until(lambda: not jump.connections())
