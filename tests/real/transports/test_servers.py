"""What SSH servers do to us: they go away, say nothing, print things, allow little."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading

import pytest

from agentless.errors import Timeout, Unreachable
from agentless.model.command import Command
from tests.real.transports.nodes import MB, node_of, opened, refusal
from tests.real.transports.sshd import WAIT, until


@contextlib.asynccontextmanager
async def silent_server():
    """The port of a server that accepts and says nothing, and who has called."""
    writers = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], writers
    server.close()
    for writer in writers:
        writer.close()


async def test_a_login_that_prints_does_not_get_into_results(start, library):
    server = start("ForceCommand sh -c 'echo Welcome; printf noise >&2; cat /proc/self/stat; exec sh'")
    async with opened(node_of(server, library)) as session:
        result = await session.run(Command("echo x; echo y >&2"))
        assert (result.stdout, result.stderr) == (b"x\n", b"y\n")
        async with session.stream(Command("echo z")) as stream:
            assert [chunk async for chunk in stream] == [(1, b"z\n")]


async def test_a_shell_that_does_not_lead_its_group_gets_a_group_of_its_own(start, library, mark):
    node = node_of(start("ForceCommand sh -c 'sh; true'"), library)
    async with opened(node) as session:
        group = int((await session.run(Command("cut -d' ' -f5 /proc/$$/stat"))).stdout)
        assert int((await session.run(Command("echo $$"))).stdout) == group
        with pytest.raises(Timeout):
            await session.run(Command(f"sleep {mark}", timeout=0.3))
        await until(lambda: not node.runs(mark))


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo This account is not available", "This account is not available"),
        ("echo out; printf '\\033[31mred\\nline' >&2", "�[31mred line"),
        ("head -c 5000 /dev/zero | tr '\\000' x; echo end", f"…{296 * 'x'}end"),
    ],
    ids=["stdout", "stderr", "much"],
)
async def test_an_account_that_runs_nothing_and_what_it_says(start, library, does, said):
    async with opened(node_of(start(f"ForceCommand {does}"), library)) as session:
        with pytest.raises(Unreachable, match=re.escape(f"node1 ended the shell immediately with: {said}; check")):
            await session.run(Command("true"))


async def test_an_account_that_runs_nothing_and_says_nothing(start, library):
    async with opened(node_of(start("ForceCommand true"), library)) as session:
        with pytest.raises(Unreachable, match="node1 ended the shell immediately; check that"):
            await session.run(Command("true"))


async def test_a_login_that_hangs(start, library, monkeypatch):
    monkeypatch.setattr("agentless.remote.session.START_TIMEOUT", 0.3)
    node = node_of(start("ForceCommand cat >/dev/null"), library)
    async with opened(node) as session:
        with pytest.raises(Timeout, match=r"node1 did not start a shell within 0\.3 s"):
            await session.run(Command("true"))
        await until(lambda: not node.processes())


async def test_a_server_that_goes_away_breaks_what_is_in_flight(start, library, mark, monkeypatch):
    monkeypatch.setattr("agentless.remote.guards.GUARD_GRACE", 0.0)
    server = start()
    node = node_of(server, library)
    async with opened(node) as session, session.stream(Command(f"sleep {mark}")) as stream:
        running = session.run(Command(f"sleep {mark}", timeout=3.0))
        flying = asyncio.gather(running, anext(stream), return_exceptions=True)
        await until(lambda: sum(f"sleep {mark}" == line for line in node.processes().values()) == 2)
        server.break_connections()
        async with asyncio.timeout(WAIT):
            errors = await flying
        assert [str(error) for error in errors] == ["node1 closed the connection"] * 2
        assert [type(error) for error in errors] == [Unreachable] * 2
        assert not session.connected


async def test_what_broke_is_not_connected_again_unasked(start, library):
    server = start()
    transport = node_of(server, library).transport()
    await transport.connect()
    server.break_connections()
    await until(lambda: not transport.alive)
    with pytest.raises(Unreachable, match="node1 closed the connection"):
        await transport.shell()
    await transport.close()


async def test_a_broken_link_ends_a_stream_on_the_node(start, library, mark):
    server = start()
    node = node_of(server, library)
    async with opened(node) as session, session.stream(Command(f"sleep {mark} | cat; sleep {mark}")):
        await until(lambda: node.runs(mark))
        server.break_connections()
        await until(lambda: not node.processes(), "something outlived the link")


async def test_a_link_that_falls_silent_is_noticed(start, library, mark, monkeypatch):
    monkeypatch.setattr(f"agentless.remote.transports.{library}.KEEPALIVE", 0.2)
    server = start()
    async with opened(node_of(server, library)) as session:
        async with session.stream(Command(f"echo x; sleep {mark}")) as stream:
            await anext(stream)
            server.freeze_connections()
            with pytest.raises(Unreachable, match="node1 no longer answers"):
                await asyncio.wait_for(anext(stream), WAIT)
        assert not session.connected
        server.break_connections()


async def test_connecting_again_after_the_server_was_restarted(start, library):
    server = start()
    async with opened(node_of(server, library)) as session:
        assert (await session.run(Command("true"))).ok
        server.stop()
        with pytest.raises(Unreachable, match="node1 closed the connection"):
            await session.run(Command("true"))
        with pytest.raises(Unreachable, match=r"node1 \(.*\) cannot be reached: Connection refused"):
            await session.connect()
        server.start()
        await session.connect()
        assert session.connected
        assert (await session.run(Command("echo back"))).stdout == b"back\n"


async def test_a_server_that_says_nothing(shared_server, library):
    async with silent_server() as (port, _), asyncio.timeout(WAIT):
        node = node_of(shared_server, library, port=port).but(connect_timeout=0.3)
        assert "did not answer within 0.3 s" in str(await refusal(node))


async def test_a_server_that_greets_with_no_text(shared_server, library):
    async def greet(_, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(b"SSH-2.0-\xff\xfe\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, asyncio.timeout(WAIT):
        node = node_of(shared_server, library, port=server.sockets[0].getsockname()[1])
        assert (
            "closed the connection during the login: it does not answer like an SSH server; check that `ssh -p "
        ) in str(await refusal(node))


async def test_a_jump_host_that_says_nothing_is_waited_for_once(shared_server, library):
    async with silent_server() as (port, callers), asyncio.timeout(WAIT):
        node = node_of(shared_server, library, jump=f"127.0.0.1:{port}").but(connect_timeout=0.5)
        errors = await asyncio.gather(*(refusal(node) for _ in range(30)))
        assert len(callers) == 1
    assert {str(error).partition(" (")[0] for error in errors} == {"jump host 127.0.0.1"}


async def test_a_name_that_is_not_known(shared_server, library, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = await refusal(node_of(shared_server, library, host="no-such.invalid"))
    assert "unknown host name" in str(error)


async def test_a_cancelled_login_leaves_no_thread(shared_server, library):
    before = set(threading.enumerate())
    async with silent_server() as (port, _):
        connecting = asyncio.create_task(node_of(shared_server, library, port=port).session().connect())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connecting, 0.2)
        await until(lambda: not threads_since(before))


async def test_a_closed_session_leaves_no_thread(shared_server, library):
    before = set(threading.enumerate())
    async with opened(node_of(shared_server, library)) as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run(Command("sleep 60", stdin=b"x" * 20 * MB)), 0.2)
    await until(lambda: not threads_since(before))


def threads_since(before: set[threading.Thread]) -> list[str]:
    return [t.name for t in threading.enumerate() if t not in before and not t.name.startswith("asyncio")]
