"""What may be relied on when a script has a terminal, over every transport, and what servers do about it."""

from __future__ import annotations

import asyncio

import pytest

from agentless.errors import Refused, Unreachable
from agentless.model.command import Command
from agentless.model.terminal import Size
from tests.real.transports.nodes import node_of, opened
from tests.real.transports.sshd import WAIT, until
from tests.terminals import *  # noqa: F403 - the tests

SIZE = Size(80, 24)


async def test_a_terminal_that_has_ended_leaves_nothing(session, node):
    async with session.terminal(Command("echo x"), SIZE) as terminal:
        while await terminal.read() is not None:
            pass
        await until(lambda: not node.processes(), "something outlived its terminal")


async def test_a_broken_link_hangs_a_terminal_up(start, library, mark):
    server = start()
    node = node_of(server, library)

    async def break_in_the_middle():
        async with session.terminal(Command(f"sleep {mark}; sleep {mark}"), SIZE) as terminal:
            await until(lambda: node.runs(mark))
            server.break_connections()
            async with asyncio.timeout(WAIT):
                await terminal.read()

    async with opened(node) as session:
        with pytest.raises(Unreachable, match="node1 closed the connection"):
            await break_in_the_middle()
        assert not session.connected
        await until(lambda: not node.processes(), "something outlived the link")


async def test_a_terminal_that_is_left_at_once_leaves_nothing(start, library, mark):
    async with opened(node_of(start("MaxSessions 30"), library)) as session:
        for _ in range(20):
            async with session.terminal(Command(f"sleep {mark}"), SIZE):
                pass


async def test_a_server_that_gives_no_terminals(start, library):
    async with opened(node_of(start("PermitTTY no"), library)) as session:
        with pytest.raises(Refused, match=r"node1 does not allow terminals; set PermitTTY"):
            async with session.terminal(Command("true"), SIZE):
                pass
        assert (await session.run(Command("echo usable"))).ok


async def test_what_an_rc_file_prints_comes_before_the_script(start, library):
    server = start("ForceCommand sh -c 'echo Welcome; eval \"$SSH_ORIGINAL_COMMAND\"'")
    async with opened(node_of(server, library)) as session, session.terminal(Command("echo x"), SIZE) as terminal:
        seen = b""
        while (chunk := await terminal.read()) is not None:
            seen += chunk[1]
    assert seen == b"Welcome\r\nx\r\n"
