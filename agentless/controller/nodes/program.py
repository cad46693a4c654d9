"""An interactive program in the container of a task or of an env."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from agentless.controller.nodes.conversation import NoMark, until_mark
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, RuntimeFailed, Timeout, Unreachable
from agentless.model.command import Command, escaped
from agentless.model.nodes.node import unreachable
from agentless.model.terminal import Attachment, InputKind, Size
from agentless.ports import Duplex, Reading, Terminal
from agentless.remote.session import Session
from agentless.remote.worker import GREETING

_endings: set[asyncio.Task[None]] = set()
BEGIN_WITHIN = 20.0
"""Seconds in which the program must have begun: an engine under load is slow, a `sudo` that asks waits for ever."""


class Program:
    """A running program. Its exit code is `wait()`.

    `reading` takes what the engine itself prints out of the output.
    """

    def __init__(self, shell: Duplex, reading: Reading, kind: InputKind) -> None:
        self._shell = shell
        self._kind = kind
        self._printed: deque[tuple[int, bytes]] = deque()
        self._own = reading
        self.ended = False
        self.wait = shell.wait

    async def begin(self, mark: str) -> None:
        """Wait until the program has begun; raises NoMark if it never does."""
        flood = f"the node sent more than {GREETING >> 20} MiB before the program started; retry"
        # Its errors may be faster than the mark, which comes by another stream.
        for fd, data in enumerate(await until_mark(self._shell, mark, flood), start=1):
            self._printed.extend(self._own(fd, data) if data else ())

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`: on a terminal, all of it comes on stream 1."""
        while not self._printed and (chunk := await self._shell.read()):
            self._printed.extend(self._own(*chunk))
        self.ended = not self._printed
        return self._printed.popleft() if self._printed else None

    async def write(self, data: bytes) -> None:
        """Send input."""
        await self._shell.write(escaped(data) + b"\n" if self._kind is InputKind.LINES else data)

    async def write_eof(self) -> None:
        """End the input. On a terminal the user types a key for that."""
        if self._kind is InputKind.LINES:
            await self._shell.write(b".\n")
        elif self._kind is InputKind.PIPE:
            await self._shell.write_eof()

    async def resize(self, size: Size) -> None:
        """Resize the terminal, if it has one."""
        if self._kind is InputKind.TERMINAL:
            await cast(Terminal, self._shell).resize(size)


@asynccontextmanager
async def started(
    link: NodeLink, container: str, command: Sequence[str], attached: Attachment
) -> AsyncIterator[Program]:
    """Start a program in this container."""
    await link.ready()
    if not link.online:
        raise Unreachable(unreachable(link.node.name, link.observation.error))
    mark = secrets.token_hex(16)
    commands = link.runtime.terminal
    script, reading = commands.shell(container, command, mark, attached), commands.reading(attached.input)
    async with _opened(link.session, script, attached) as shell:
        program = Program(shell, reading, attached.input)
        await _begin(link, program, mark)
        try:
            yield program
        finally:
            if attached.input is InputKind.PIPE and not program.ended:
                _hang_up(link, commands.hang_up(container, mark))


def _hang_up(link: NodeLink, command: Command) -> None:
    """End a program that somebody has left.

    On the node its script does so, too, but it may end before that, with the client of the engine that wants to print.
    """
    ending = asyncio.create_task(_run_quietly(link, command))
    _endings.add(ending)
    ending.add_done_callback(_endings.discard)


async def _run_quietly(link: NodeLink, command: Command) -> None:
    with contextlib.suppress(AgentlessError):
        await link.run(command)


def _opened(session: Session, script: Command, attached: Attachment) -> AbstractAsyncContextManager[Duplex]:
    if attached.size:
        return session.terminal(script, attached.size)
    return session.pipe(script) if attached.input is InputKind.PIPE else session.dialogue(script)


async def _begin(link: NodeLink, program: Program, mark: str) -> None:
    try:
        async with asyncio.timeout(BEGIN_WITHIN):
            await program.begin(mark)
    except TimeoutError:
        raise Timeout(
            f"{link.node.name} did not start the program in the container within {BEGIN_WITHIN:g} s; retry"
        ) from None
    except NoMark as end:
        words = (end.out + end.err).decode("utf-8", "replace")
        raise RuntimeFailed(f"{link.node.name}: {link.runtime.complaint(words)}") from None
