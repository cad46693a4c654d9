"""The SSH server of a simulated node: one key opens it, whoever logs in, and all it starts is `sh`.

A session is that `sh` as a child process: `sh -c COMMAND` for a command, a bare `sh` otherwise. Its streams make the
other side wait when they are full. When the channel or the connection goes, so do the `sh` and all it started, as after
a logout on a machine that kills user processes; one on a terminal is hung up, and goes when it has ended by that.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import asyncssh

from agentless.demo.processes.pipes import Reader, Writer
from agentless.demo.processes.processes import PIPE, Child, Children
from agentless.demo.processes.terminal import PseudoTerminal
from agentless.remote.packets import CIPHERS, send_no_empty_ones


class Sshd:
    """The server of one node. It keeps its port from the first `start` on."""

    def __init__(
        self,
        host_key: asyncssh.SSHKey,
        authorized_keys: str,
        folder: Path,
        env: Mapping[str, str],
        children: Children,
    ) -> None:
        self.port = 0
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._listener: asyncssh.SSHAcceptor | None = None
        self._options = asyncssh.SSHServerConnectionOptions(
            server_factory=lambda: _Login(self._connections, lambda: _Session(folder, env, children)),
            server_host_keys=[host_key],
            encryption_algs=CIPHERS,
            authorized_client_keys=asyncssh.import_authorized_keys(authorized_keys),
            agent_forwarding=False,
            x11_forwarding=False,
        )

    async def start(self) -> None:
        """Listen on 127.0.0.1."""
        if not self._listener:
            self._listener = await asyncssh.listen("127.0.0.1", self.port, options=self._options, backlog=1000)
            self.port = self._listener.get_port()

    def stop(self) -> None:
        """Drop all connections and refuse new ones."""
        if self._listener:
            self._listener.close()
            self._listener = None
        self.drop()

    def drop(self) -> None:
        """Break all connections; new ones are welcome."""
        for connection in list(self._connections):
            connection.abort()


class _Login(asyncssh.SSHServer):
    def __init__(self, connections: set[asyncssh.SSHServerConnection], session: Callable[[], _Session]) -> None:
        self._connections, self._session = connections, session

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)
        send_no_empty_ones(conn)  # as OpenSSH

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self._connection)

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], _Session]:
        return self._connection.create_server_channel(encoding=None), self._session()


class _Session(asyncssh.SSHServerSession[bytes]):
    def __init__(self, folder: Path, env: Mapping[str, str], children: Children) -> None:
        self._folder, self._env, self._children = folder, env, children
        self._child: Child | None = None
        self._stdin: Writer | None = None
        self._outputs: list[Reader] = []
        self._argv = ["sh"]
        self._terminal: PseudoTerminal | None = None
        self._gone = False

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def pty_requested(self, _type: str, size: tuple[int, int, int, int], _modes: Mapping[int, int]) -> bool:
        self._terminal = PseudoTerminal(*size[:2])
        return True

    def terminal_size_changed(self, width: int, height: int, _pixwidth: int, _pixheight: int) -> None:
        if self._terminal:
            self._terminal.resize(width, height)

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._argv = ["sh", "-c", command]
        return True

    def session_started(self) -> None:
        if self._terminal:
            self._start_on(self._terminal)
            return
        child = self._children.start(self._argv, self._env, self._folder, self._exited, stdin=PIPE)
        self._child = child
        self._stdin = Writer(child.stdin, self._chan.pause_reading, self._chan.resume_reading)
        self._outputs = [
            Reader(child.stdout, lambda data: self._print(data, None)),
            Reader(child.stderr, lambda data: self._print(data, asyncssh.EXTENDED_DATA_STDERR)),
        ]

    def _start_on(self, terminal: PseudoTerminal) -> None:
        words, end = terminal.words(self._argv), terminal.theirs
        self._child = self._children.start(words, self._env, self._folder, self._exited, end, end)
        os.close(end)
        self._stdin = Writer(terminal.input, self._chan.pause_reading, self._chan.resume_reading)
        self._outputs = [Reader(terminal.output, lambda data: self._print(data, None))]

    def data_received(self, data: bytes, _datatype: asyncssh.DataType) -> None:
        if self._stdin:
            self._stdin.write(data)

    def eof_received(self) -> bool:
        if self._stdin:
            self._stdin.write_eof()
        return True

    def pause_writing(self) -> None:
        for reader in self._outputs:
            reader.pause()

    def resume_writing(self) -> None:
        for reader in self._outputs:
            reader.resume()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._child and self._stdin:
            self._gone = True
            self._stdin.close()
            for reader in self._outputs:
                reader.close()
            # What has a terminal was hung up by that, and ends in its own time.
            if not self._terminal or self._child.status is not None:
                self._child.end()

    def _print(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if data:
            # Its client may have gone in this moment; `connection_lost` follows.
            with contextlib.suppress(BrokenPipeError):
                self._chan.write(data, datatype)
        else:
            self._end_if_over()

    def _exited(self, _status: int) -> None:
        if self._gone and self._child:
            self._child.end()
        else:
            self._end_if_over()

    def _end_if_over(self) -> None:
        """As sshd: a session is over when its process has ended and nobody can print any more."""
        if not self._child or self._child.status is None or not all(reader.ended for reader in self._outputs):
            return
        status = self._child.status
        if status < 0:
            self._chan.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            self._chan.exit(status)
