"""Programs in containers, of running tasks and of envs, each with somebody who types to it."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agentless.controller.nodes.connection import Link
from agentless.controller.nodes.registry import Core
from agentless.errors import Refused, RuntimeFailed, Timeout, TooMuch, Unreachable
from agentless.model.command import escaped
from agentless.model.nodes.node import unreachable
from agentless.model.tasks.task import Running
from agentless.model.terminal import Size
from agentless.ports import Reading, Shell, Terminal
from agentless.remote.session import GREETING

BEGIN_WITHIN = 20.0
"""Seconds in which the program must have begun: an engine under load is slow, a `sudo` that asks waits for ever."""


class Program:
    """One that runs, on a terminal or without one. Its exit code is `wait()`.

    `reading` makes its own words of what comes, which may have words of the engine's in it.
    """

    def __init__(self, shell: Shell, reading: Reading, terminal: Terminal | None = None) -> None:
        self._shell = shell
        self._terminal = terminal
        self._printed: deque[tuple[int, bytes]] = deque()
        self._own = reading
        self.wait = shell.wait

    async def begin(self, mark: str) -> bytes | None:
        """Read on until it has begun; what was printed instead when it never did."""
        wanted, seen = f"{mark};".encode(), {1: b"", 2: b""}
        while wanted not in seen[1]:
            chunk = await self._shell.read()
            if chunk is None:
                return seen[1] + seen[2]
            seen[chunk[0]] += chunk[1]
            if len(seen[1]) + len(seen[2]) > GREETING:
                raise TooMuch(f"the node said more than {GREETING >> 20} MiB before the program began; try again")
        # Its errors may be faster than the mark, which comes by another stream.
        for fd, data in {1: seen[1].partition(wanted)[2], 2: seen[2]}.items():
            self._printed.extend(self._own(fd, data) if data else ())
        return None

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`: on a terminal, all of it comes on stream 1."""
        while not self._printed and (chunk := await self._shell.read()):
            self._printed.extend(self._own(*chunk))
        return self._printed.popleft() if self._printed else None

    async def write(self, data: bytes) -> None:
        """Type."""
        await self._shell.write(data if self._terminal else escaped(data) + b"\n")

    async def write_eof(self) -> None:
        """End its input. On a terminal that is a key, and something to type."""
        if not self._terminal:
            await self._shell.write(b".\n")

    async def resize(self, size: Size) -> None:
        """Give its terminal another size."""
        if self._terminal:
            await self._terminal.resize(size)


class Terminals:
    """Opens them. When one is left, for whatever reason, its program is ended by the node itself."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @asynccontextmanager
    async def open(
        self, reference: str, command: Sequence[str], size: Size | None, owner: str | None
    ) -> AsyncIterator[Program]:
        """Run a command (none: a shell) in the container of a task, without a `size` without a terminal.

        `owner` is who asks, None: the controller's own.
        """
        task = self._core.find(reference)
        if not isinstance(task.status, Running):
            raise Refused(f"task {task.id} is {task.state}: a shell needs a running task")
        link = self._core.links.get(task.status.placement.node)
        if link is None:
            raise Unreachable(f"{task.node} is not in the inventory any more; add it again to reach its tasks")
        if link.runtime_of(task).terminal is None:
            gpus = ",".join(task.status.placement.gpu_uuids)
            raise Refused(
                f"task {task.id} has no container to open a shell in (--container NULL): it runs on {link.node.name} "
                f"itself; log in there, and set CUDA_VISIBLE_DEVICES={gpus}"
            )
        async with started(link, task.container_ref, command, size) as program:
            self._core.publish(task, "shell-opened", f"agentless shell, by {owner or self._core.owner}")
            yield program


@asynccontextmanager
async def started(link: Link, container: str, command: Sequence[str], size: Size | None) -> AsyncIterator[Program]:
    """A program that has begun in this container."""
    await link.ready()
    if not link.online:
        raise Unreachable(unreachable(link.node.name, link.observation.error))
    mark = secrets.token_hex(16)
    commands, typed = link.runtime.terminal, size is not None
    script, reading = commands.shell(container, command, mark, terminal=typed), commands.reading(terminal=typed)
    if size is None:
        async with link.session.dialogue(script) as shell:
            program = Program(shell, reading)
            await _begin(link, program, mark)
            yield program
    else:
        async with link.session.terminal(script, size) as terminal:
            program = Program(terminal, reading, terminal)
            await _begin(link, program, mark)
            yield program


async def _begin(link: Link, program: Program, mark: str) -> None:
    try:
        async with asyncio.timeout(BEGIN_WITHIN):
            printed = await program.begin(mark)
    except TimeoutError:
        raise Timeout(f"{link.node.name} began nothing in the container within {BEGIN_WITHIN:g} s; try again") from None
    if printed is not None:
        raise RuntimeFailed(f"{link.node.name}: {link.runtime.complaint(printed.decode('utf-8', 'replace'))}")
