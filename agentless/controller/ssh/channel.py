"""One channel of a connection: a shell, a command or a file server in the container."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.packet import SSHPacket
from asyncssh.stream import SSHServerStreamSession

from agentless.controller.nodes.login import Login
from agentless.controller.nodes.program import Program
from agentless.controller.ssh.sftp import OpenEnd, serve_files
from agentless.controller.ssh.visit import Visit
from agentless.errors import AgentlessError
from agentless.model.terminal import Attachment, InputKind, Size
from agentless.remote.concurrency import cancel

CHUNK = 256 * 1024
FAILED = 255
"""The exit code of ssh where the connection failed."""
_SFTP = "sftp"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MOST_VARIABLES = 64
_LONGEST = 4096
_SIGNALS = frozenset(
    {"ABRT", "ALRM", "CONT", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2"}
)
"""Those of the protocol (RFC 4254, 6.10), and the one that resumes a program."""
_MOST_SIGNALS = 16
"""Signals that wait to be sent."""
_AGENT = "SSH_AUTH_SOCK"


@dataclass(frozen=True)
class Streams:
    """The user's side of a program."""

    stdin: asyncssh.SSHReader[bytes]
    stdout: asyncssh.SSHWriter[bytes]
    stderr: asyncssh.SSHWriter[bytes]


class Connection(Protocol):
    """The connection of a channel."""

    visit: Visit

    async def settled(self) -> None:
        """Wait for what the client has asked for before."""

    async def agent(self) -> str:
        """The path of a socket in the container that leads to the user's agent; raises what its start raises."""


class Channel(SSHServerStreamSession[bytes]):
    """Begins the program that is asked for, and ends it when the user leaves. `wants_agent`: with the user's agent."""

    def __init__(self, login: Login, connection: Connection) -> None:
        super().__init__(None)
        self.wants_agent = False
        self._login = login
        self._connection = connection
        self._signals: asyncio.Queue[str] = asyncio.Queue(_MOST_SIGNALS)
        self._running: asyncio.Task[None] | None = None

    def connection_made(self, chan: SSHChannel[bytes]) -> None:
        """Remember the channel."""
        super().connection_made(chan)
        self._channel = cast(asyncssh.SSHServerChannel[bytes], chan)

    def shell_requested(self) -> bool:
        """Accept a shell."""
        return True

    def exec_requested(self, command: str) -> bool:
        """Accept a command."""
        del command
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept sftp."""
        return subsystem == _SFTP

    def connection_lost(self, exc: Exception | None) -> None:
        """End what runs for somebody who has left."""
        super().connection_lost(exc)
        self.end()

    def end(self) -> None:
        """End the program."""
        if self._running:
            self._running.cancel()

    def signal_received(self, signal: str) -> None:
        """Send it to the program, even if that reads no input."""
        if signal in _SIGNALS and not self._signals.full():
            self._signals.put_nowait(signal)

    def session_started(self) -> None:
        """Begin."""
        chan = self._channel
        kind = "files" if chan.get_subsystem() else "shell" if chan.get_command() is None else "command"
        self._connection.visit.asks(kind)
        errors = asyncssh.SSHWriter(self, chan, asyncssh.EXTENDED_DATA_STDERR)
        streams = Streams(asyncssh.SSHReader(self, chan), asyncssh.SSHWriter(self, chan), errors)
        self._running = asyncio.create_task(self._run(streams))

    async def _run(self, streams: Streams) -> None:
        """Run the program to its end."""
        try:
            await self._connection.settled()
            code = await (self._serve_files(streams) if self._channel.get_subsystem() else self._run_program(streams))
        except AgentlessError as error:
            code = FAILED
            with contextlib.suppress(OSError):
                streams.stderr.write(f"agentless: {error}\r\n".encode())
        if code is None:
            self._channel.close()
        else:
            self._channel.exit(code)

    async def _run_program(self, streams: Streams) -> int | None:
        attached = self._attachment()
        if self.wants_agent:
            attached = replace(attached, variables={**attached.variables, **await self._agent(streams)})
        async with self._login.shell(self._channel.get_command(), attached) as program:
            telling = asyncio.create_task(self._tell(program))
            try:
                with self._shown(streams):
                    return await _carry(program, streams)
            finally:
                await cancel(telling)

    @contextlib.contextmanager
    def _shown(self, streams: Streams) -> Iterator[None]:
        """Show notices about the container on a terminal."""

        def show(text: str) -> None:
            with contextlib.suppress(OSError):
                streams.stdout.write(f"\r\nagentless: {text}\r\n".encode())

        if self._channel.get_terminal_type() is not None:
            self._login.watchers.add(show)
        try:
            yield
        finally:
            self._login.watchers.discard(show)

    async def _agent(self, streams: Streams) -> dict[str, str]:
        """The variable by which programs find the user's agent; without one the user is told why."""
        try:
            return {_AGENT: await self._connection.agent()}
        except AgentlessError as error:
            streams.stderr.write(f"agentless: cannot forward the SSH agent: {error}\r\n".encode())
            return {}

    async def _tell(self, program: Program) -> None:
        while True:
            await program.tell(await self._signals.get())

    async def _serve_files(self, streams: Streams) -> int | None:
        """By the container's own sftp-server; by ours, which asks a shell there, if it has none."""
        async with self._login.files() as program:
            answer = b""
            while not answer:
                chunk = await program.read()
                if chunk is None:
                    return FAILED
                answer += chunk[1] if chunk[0] == 1 else b""
            if answer[:1] == b"+":
                streams.stdout.write(answer[1:])
                return await _carry(program, streams)
            shell = program, answer[1:]
            await serve_files(self._login, shell, self._channel, (streams.stdin, OpenEnd(self, self._channel)))
            self._channel.exit(0)  # nobody waits for what is still to end on the node
            return 0

    def _attachment(self) -> Attachment:
        variables = _variables(self._channel.get_environment())
        kind = self._channel.get_terminal_type()
        if kind is None:
            return Attachment(InputKind.PIPE, None, variables)
        columns, rows, *_ = self._channel.get_terminal_size()
        return Attachment(InputKind.TERMINAL, _size(columns, rows), _variables({"TERM": kind}) | variables)


class ServerChannel(asyncssh.SSHServerChannel[bytes]):
    """A channel that hears OpenSSH say that nobody reads its output any more (PROTOCOL, 2.1): `ssh HOST yes | head`.

    It makes no socket for the agent on this machine, as the library would, but in the container.
    """

    def _process_auth_agent_req_at_openssh_dot_com_request(self, packet: SSHPacket) -> bool:  # type: ignore[override]
        packet.check_end()
        if isinstance(self._session, Channel):
            self._session.wants_agent = True
        return True

    def _process_eow_at_openssh_dot_com_request(self, packet: SSHPacket) -> bool:
        packet.check_end()
        if isinstance(self._session, Channel):
            self._session.end()
        self._send_buf, self._send_buf_len = [], 0
        self.exit(128 + signal.SIGPIPE)
        return True


async def _carry(program: Program, streams: Streams) -> int | None:
    """Pass on both directions. Returns the exit code, None if the user has left."""
    printing = asyncio.create_task(_print(program, streams))
    typing = asyncio.create_task(_type(program, streams.stdin))
    left = asyncio.create_task(streams.stdout.channel.wait_closed())
    try:
        while not printing.done():
            running = {task for task in (printing, typing, left) if not task.done()}
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                return None
            if typing.done():
                typing.result()
        printing.result()
        return await program.wait()
    finally:
        await cancel(printing, typing, left)


async def _print(program: Program, streams: Streams) -> None:
    with contextlib.suppress(OSError):  # the user has left
        while chunk := await program.read():
            stream = streams.stderr if chunk[0] == 2 else streams.stdout
            stream.write(chunk[1])
            await stream.drain()


async def _type(program: Program, stdin: asyncssh.SSHReader[bytes]) -> None:
    """Pass on input to its end."""
    while True:
        try:
            data = await stdin.read(CHUNK)
        except asyncssh.TerminalSizeChanged as change:
            await program.resize(_size(change.width, change.height))
        except asyncssh.BreakReceived:
            continue
        else:
            if not data:
                await program.write_eof()
                return
            await program.write(data)


def _size(columns: int, rows: int) -> Size:
    """A terminal without a size, as a script has it, has the usual one."""
    return Size(min(columns, 9999) or 80, min(rows, 9999) or 24)


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that can be passed on."""
    good = [(name, value) for name, value in env.items() if _NAME.fullmatch(name) and len(value) <= _LONGEST]
    return {name: value for name, value in good[:_MOST_VARIABLES] if "\0" not in value}
