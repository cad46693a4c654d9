"""This machine as a node: a `sh` of our own, with the environment as it is."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE
from typing import cast

from agentless.errors import Unreachable
from agentless.model.nodes.node import NodeConfig
from agentless.model.terminal import Size
from agentless.remote.transports._flow import Flow
from agentless.remote.transports._local_terminal import LocalTerminal, open_terminal
from agentless.remote.transports._ssh.route import SshFiles

CLOSE_TIMEOUT = 1.0
"""Seconds to wait for the end of a closed shell; only one that runs a command takes longer."""


def make(node: NodeConfig, ssh: SshFiles) -> LocalTransport:
    """A transport to this machine, whatever `node.host` says."""
    del ssh
    return LocalTransport(node.name)


class LocalTransport:
    """Starts `sh` as a child process in a session of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connected = False
        self._shells: set[_Shell] = set()
        self._terminals: set[LocalTerminal] = set()

    @property
    def alive(self) -> bool:
        """As `Transport.alive`."""
        return self._connected

    @property
    def sessions(self) -> None:
        """As `Transport.sessions`: there is no limit."""

    @property
    def address(self) -> str:
        """As `Transport.address`: there is none."""
        return ""

    async def connect(self) -> None:
        """There is nothing to reach."""
        self._connected = True

    async def shell(self, *, own: bool = False, wait: bool = True) -> _Shell:
        """Start a `sh`."""
        del own, wait
        if not self._connected:
            raise Unreachable(f"{self._name} is not connected")
        try:
            _, shell = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Shell(self._shells), "sh", stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
            )
        except OSError as error:
            raise Unreachable(f"{self._name} cannot start sh: {error.strerror}") from error
        return shell

    async def terminal(self, script: str, size: Size) -> LocalTerminal:
        """Start a `sh` on a pseudo-terminal."""
        if not self._connected:
            raise Unreachable(f"{self._name} is not connected")
        try:
            return await open_terminal(script, size, self._terminals)
        except OSError as error:
            raise Unreachable(f"{self._name} cannot open a terminal: {error.strerror}") from error

    async def close(self) -> None:
        """End all shells, as if a connection had ended."""
        self._connected = False
        everything: list[_Shell | LocalTerminal] = [*self._shells, *self._terminals]
        for shell in everything:
            shell.finish(Unreachable(f"{self._name} closed the connection"))
        await asyncio.gather(*(shell.close() for shell in everything))


class _Shell(Flow, asyncio.SubprocessProtocol):
    def __init__(self, alive: set[_Shell]) -> None:
        super().__init__()
        self._alive = alive
        self._open = {1, 2}
        self._exited = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._alive.add(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.feed(fd, data)

    def pipe_connection_lost(self, fd: int, _exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.finish()

    def process_exited(self) -> None:
        self._exited.set()
        self._alive.discard(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        # Not before: it would reap the process itself, and its exit code would be lost.
        self._process.close()

    def hold(self, paused: bool) -> None:
        for fd in self._open:
            pipe = cast(asyncio.ReadTransport, self._process.get_pipe_transport(fd))
            if paused:
                pipe.pause_reading()
            else:
                pipe.resume_reading()

    async def write(self, data: bytes) -> None:
        """As `Shell.write`."""
        if not self._stdin.is_closing():
            self._stdin.write(data)
            await self.may_send()

    async def write_eof(self) -> None:
        """As `Shell.write_eof`."""
        self._stdin.close()

    async def wait(self) -> int:
        """As `Shell.wait`."""
        await self._exited.wait()
        code = self._process.get_returncode()
        return 255 if code is None else code if code >= 0 else 128 - code

    async def close(self) -> None:
        """As `Shell.close`. A `sh` without stdin ends by itself; what it runs is on a leash, or guarded."""
        self.finish()
        for fd in self._open:
            cast(asyncio.ReadTransport, self._process.get_pipe_transport(fd)).close()
        if not self._stdin.is_closing():
            self._stdin.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._exited.wait()

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))
