"""An interactive program in the container of a task or of an env, or beside those of a task without one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from agentless.controller.nodes.cluster_link import TaskLink
from agentless.controller.nodes.conversation import NoMark, until_mark
from agentless.controller.nodes.endings import Endings
from agentless.errors import AgentlessError, RuntimeFailed, Timeout, Unreachable
from agentless.model.command import Command, escaped
from agentless.model.nodes.node import unreachable
from agentless.model.terminal import Attachment, InputKind, Size
from agentless.ports import Duplex, Engine, Reading, Terminal
from agentless.remote.session import Session
from agentless.remote.worker import GREETING

BEGIN_WITHIN = 20.0
"""Seconds in which the program must have begun: an engine under load is slow, a `sudo` that asks waits for ever."""


@dataclass(frozen=True)
class Place:
    """Where programs run: a container, or a unit, of an engine of a node. `variables` are set for all of them."""

    link: TaskLink
    engine: Engine
    container: str
    endings: Endings
    variables: Mapping[str, str] = field(default_factory=dict)


class Program:
    """A running program. Its exit code is `wait()`, and `tell` sends it a signal, named without SIG.

    `reading` takes what the engine itself prints out of the output.
    """

    def __init__(
        self, shell: Duplex, reading: Reading, kind: InputKind, tell: Callable[[str], Awaitable[None]]
    ) -> None:
        self._shell = shell
        self._kind = kind
        self._printed: deque[tuple[int, bytes]] = deque()
        self._own = reading
        self.ended = False
        self.wait = shell.wait
        self.tell = tell

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
async def started(place: Place, command: Sequence[str], attached: Attachment) -> AsyncIterator[Program]:
    """Start a program there. It ends with this, but for one in a paused container, which ends when that goes on."""
    link, commands, container = place.link, place.engine.terminal, place.container
    await link.ready()
    if not link.online:
        raise Unreachable(unreachable(link.node.name, link.observation.error))
    attached = replace(attached, variables={**attached.variables, **place.variables})
    mark = secrets.token_hex(16)
    script, reading = commands.shell(container, command, mark, attached), commands.reading(attached.input)
    async with _opened(link.session, script, attached) as shell:
        program = Program(shell, reading, attached.input, partial(_tell, place, mark))
        await _begin(place, program, mark)
        try:
            yield program
        finally:
            # The script on the node ends the program, too, but it cannot where it ends before that, with the client of
            # the engine that wants to print, or where the container is paused.
            piped = attached.input is InputKind.PIPE
            if not program.ended and (piped or place.endings.is_paused(container)):
                place.endings.begin(link, container, commands.hang_up(container, mark, whole=piped))


async def _tell(place: Place, mark: str, signal: str) -> None:
    with contextlib.suppress(AgentlessError):
        await place.link.run(place.engine.terminal.tell(place.container, mark, signal))


def _opened(session: Session, script: Command, attached: Attachment) -> AbstractAsyncContextManager[Duplex]:
    if attached.size:
        return session.terminal(script, attached.size)
    return session.pipe(script) if attached.input is InputKind.PIPE else session.dialogue(script)


async def _begin(place: Place, program: Program, mark: str) -> None:
    node = place.link.node.name
    try:
        async with asyncio.timeout(BEGIN_WITHIN):
            await program.begin(mark)
    except TimeoutError:
        raise Timeout(f"{node} did not start the program in the container within {BEGIN_WITHIN:g} s; retry") from None
    except NoMark as end:
        words = (end.out + end.err).decode("utf-8", "replace")
        raise RuntimeFailed(f"{node}: {place.engine.complaint(words)}") from None
