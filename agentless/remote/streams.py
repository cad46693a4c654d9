"""A running command of a session: its output as it comes, and what is written to it.

`noticing` is a context manager of the session, by which the session notices that its connection has broken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Self

from agentless.model.command import Command
from agentless.ports import Shell
from agentless.remote.worker import Worker


class Stream:
    """The output of a running command: iterate for `(1 or 2, bytes)`; `exit_code` is known when it has ended."""

    def __init__(self, shell: Shell, noticing: Callable[[], AbstractContextManager[None]]) -> None:
        self.exit_code: int | None = None
        self._shell = shell
        self._noticing = noticing

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        with self._noticing():
            chunk = await self._shell.read()
            if chunk is not None:
                return chunk
            self.exit_code = await self._shell.wait()
        raise StopAsyncIteration


class Pipe:
    """A running script with its stdin: a `Shell` without output so far. Its exit code is `wait()`."""

    def __init__(self, worker: Worker, noticing: Callable[[], AbstractContextManager[None]]) -> None:
        self._worker = worker
        self._noticing = noticing

    async def begin(self, command: Command) -> None:
        """Start the script, and wait until the shell has said so: before that, it may read ahead."""
        with self._noticing():
            await self._worker.start_pipe(command)

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`; each piece is at most as long as those of the transport."""
        with self._noticing():
            return await self._worker.read()

    async def write(self, data: bytes) -> None:
        """As `Shell.write`."""
        with self._noticing():
            await self._worker.shell.write(data)

    async def write_eof(self) -> None:
        """As `Shell.write_eof`."""
        await self._worker.shell.write_eof()

    async def wait(self) -> int:
        """As `Shell.wait`."""
        return await self._worker.shell.wait()
