"""SSH with paramiko, for servers that do not work with asyncssh: slower, with threads for blocking calls."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import paramiko
from paramiko.agent import AgentKey, AgentSSH

from agentless.errors import HostKeyRejected, Unreachable
from agentless.model.nodes.node import NodeConfig
from agentless.model.terminal import Size
from agentless.remote.transports._link import SshTransport
from agentless.remote.transports._pool import ChannelRefused
from agentless.remote.transports._sessions import (
    NO_GREETING,
    TERM,
    broke_off,
    is_single,
    login_words,
    no_command,
    no_terminal,
    not_forwarded,
)
from agentless.remote.transports._ssh.keys import Encrypted, offer
from agentless.remote.transports._ssh.known_hosts import KnownHosts
from agentless.remote.transports._ssh.proxy import Proxy
from agentless.remote.transports._ssh.route import Hop, SshFiles

KEEPALIVE = 15.0
"""Seconds between two checks of the server. Without an answer for three times as long, the link is broken."""
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
CHUNK = 256 * 1024
_THREADS = 32
_T = TypeVar("_T")

# The library logs what it also raises.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


def make(node: NodeConfig, ssh: SshFiles) -> SshTransport[_Connection]:
    """A transport to the node."""
    return SshTransport(node, ssh, _dial)


async def _dial(hop: Hop, through: _Connection | Proxy | None) -> _Connection:
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"paramiko-{hop.name}")
    undo = contextlib.ExitStack()
    undo.callback(threads.shutdown, wait=False)
    try:
        library = paramiko.Transport(await _socket(hop, through, undo))
        undo.callback(library.close)
        await asyncio.get_running_loop().run_in_executor(threads, _log_in, library, hop)
    except BaseException:
        # Frees the thread that may still be at the login, too. It blocks for a moment.
        await asyncio.to_thread(undo.close)
        raise
    return _Connection(hop.name, library, threads, undo)


async def _socket(hop: Hop, through: _Connection | Proxy | None, undo: contextlib.ExitStack) -> Any:
    """A connected socket, or what behaves like one."""
    if isinstance(through, Proxy):
        return await through.start()
    if through is not None:
        channel = await through.channel_to(hop)
        undo.callback(channel.close)
        return channel
    loop = asyncio.get_running_loop()
    error = OSError("no address found")
    for family, kind, protocol, _, address in await loop.getaddrinfo(hop.host, hop.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        undo.callback(sock.close)
        sock.setblocking(False)
        # The library sends a conversation of small packets; Nagle's algorithm would hold each for 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(sock, address)
        except OSError as failed:
            error = failed
        else:
            return sock
    raise error


def _log_in(library: paramiko.Transport, hop: Hop) -> None:
    """Log in to the server. Blocks; ends when the transport is closed."""
    known = hop.host_keys()
    options = library.get_security_options()
    options.ciphers = CIPHERS
    options.key_types = known.algorithms()
    try:
        library.start_client()
        key = library.get_remote_server_key()
        _check(known, f"{key.get_name()} {key.get_base64()}", hop.node)
        _authenticate(library, hop)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise Unreachable(f"{hop.where} cannot agree on a connection: {error}; use connection: asyncssh") from None
    except (paramiko.SSHException, EOFError) as error:
        raise broke_off(hop, NO_GREETING if "protocol banner" in str(error) else error) from None


def _check(known: KnownHosts, key: str, node: str) -> None:
    try:
        known.check(key, node)
    except HostKeyRejected as rejected:
        if known.authorities and not rejected.recorded:
            rejected.args = (f"{rejected}; or use connection: asyncssh, which checks host certificates",)
        raise


def _authenticate(library: paramiko.Transport, hop: Hop) -> None:
    agent = _Agent(hop.agent)
    try:
        held: list[paramiko.PKey] = list(agent.get_keys())
        keys, tried = offer(hop, held, _Keys())
        if not keys:
            raise tried.refused(hop)
        for key in keys:
            try:
                left = library.auth_publickey(hop.user, key)
            except paramiko.SSHException:
                if not library.is_active():
                    break
            else:
                if not left:
                    return
        raise tried.refused(hop)
    finally:
        agent.close()


class _Agent(AgentSSH):
    """The SSH agent at any socket; one that cannot be reached holds no keys."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        if path is not None:
            with contextlib.suppress(OSError, paramiko.SSHException):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                sock.connect(path)
                self._connect(sock)  # type: ignore[attr-defined]

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


class _Keys:
    """As `Library`."""

    def load(self, path: Path) -> paramiko.PKey:
        try:
            key = paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            raise Encrypted from None
        except paramiko.SSHException as error:
            raise ValueError(str(error)) from None
        key.public_blob = None  # a certificate beside it, after which it would not be offered itself
        return key

    def blob(self, key: paramiko.PKey) -> bytes:
        return key.blob if isinstance(key, AgentKey) else key.asbytes()

    def certify(self, key: paramiko.PKey, certificate: Path) -> paramiko.PKey:
        twin = AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
        twin.load_certificate(str(certificate))
        return twin


class _Connection:
    """A login. `undo` ends what belongs to it."""

    def __init__(
        self, name: str, library: paramiko.Transport, threads: ThreadPoolExecutor, undo: contextlib.ExitStack
    ) -> None:
        self._name = name
        self._library = library
        self._threads = threads
        self._undo = undo
        self._end = "closed the connection"
        self._keeper = asyncio.create_task(self._keep())

    @property
    def alive(self) -> bool:
        return bool(self._library.is_active())

    @property
    def single(self) -> bool:
        return is_single(str(self._library.remote_version))

    async def call(self, function: Callable[..., _T], *args: object) -> _T:
        """Have a thread do what blocks. If cancelled, the thread ends with its channel or connection."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        except (paramiko.SSHException, OSError, EOFError, RuntimeError):
            if self.alive:
                raise
            raise self.broken() from None

    async def wind_up(self) -> None:
        """Wait a moment for the end of a connection that has begun to break."""
        with contextlib.suppress(Unreachable):
            await self.call(self._library.join, 1.0)

    def broken(self) -> Unreachable:
        """How it ended."""
        return Unreachable(f"{self._name} {self._end}")

    async def shell(self, closed: Callable[[], None]) -> _Shell:
        return await self._started(closed, "exec sh", None)

    async def terminal(self, closed: Callable[[], None], script: str, size: Size) -> _Shell:
        return await self._started(closed, login_words(script), size)

    async def _started(self, closed: Callable[[], None], command: str, size: Size | None) -> _Shell:
        try:
            return _Shell(self, await self.call(self._start, command, size), closed)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise no_command(self._name, error) from None

    def _start(self, command: str, size: Size | None) -> paramiko.Channel:
        try:
            channel = self._library.open_session()
        except paramiko.SSHException as error:  # one for each of several refusals that come at once is of no other kind
            if not self.alive:
                raise
            raise ChannelRefused(str(error)) from None
        try:
            if size is not None:
                self._give_terminal(channel, size)
            channel.exec_command(command)
        except BaseException:
            channel.close()
            raise
        return channel

    def _give_terminal(self, channel: paramiko.Channel, size: Size) -> None:
        try:
            channel.get_pty(TERM, size.columns, size.rows)
        except (paramiko.SSHException, OSError, EOFError):
            if not self.alive:
                raise
            raise no_terminal(self._name) from None

    async def channel_to(self, hop: Hop) -> paramiko.Channel:
        """A stream to the SSH server of the next machine."""
        try:
            return await self.call(self._library.open_channel, "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0))
        except paramiko.ChannelException as error:
            raise not_forwarded(hop.where, error.code, error.text) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Unreachable(f"{hop.where} cannot be reached from its jump host: {error}") from None

    async def close(self) -> None:
        self._keeper.cancel()
        await asyncio.to_thread(self._undo.close)

    async def _keep(self) -> None:
        """The library's own keepalive asks for no answer, and so would not notice that there is none."""
        with contextlib.suppress(Unreachable):
            while self.alive:
                await asyncio.sleep(KEEPALIVE)
                try:
                    async with asyncio.timeout(2 * KEEPALIVE):
                        await self.call(self._library.global_request, "keepalive@openssh.com")
                except TimeoutError:
                    self._end = "no longer answers"
                    await asyncio.to_thread(self._library.close)


class _Shell:
    def __init__(self, connection: _Connection, channel: paramiko.Channel, closed: Callable[[], None]) -> None:
        self._connection = connection
        self._channel = channel
        self._closed = closed
        self._news = _News(asyncio.get_running_loop())
        channel.in_buffer.set_event(self._news)
        channel.in_stderr_buffer.set_event(self._news)

    async def read(self) -> tuple[int, bytes] | None:
        while True:
            self._news.awaited.clear()
            over = self._channel.eof_received or self._channel.closed
            if self._channel.recv_ready():
                return 1, self._channel.recv(CHUNK)
            if self._channel.recv_stderr_ready():
                return 2, self._channel.recv_stderr(CHUNK)
            if over:
                # The library closes the channels of a connection that broke before it says that it did.
                if not self._channel.eof_received and self._channel.exit_status < 0:
                    await self._connection.wind_up()
                    raise self._connection.broken()
                return None
            await self._news.awaited.wait()

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError, Unreachable):
            await self._connection.call(self._channel.sendall, data)

    async def write_eof(self) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError, Unreachable):
            await self._connection.call(self._channel.shutdown_write)

    async def resize(self, size: Size) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError, Unreachable):
            await self._connection.call(self._channel.resize_pty, size.columns, size.rows)

    async def wait(self) -> int:
        code = await self._connection.call(self._channel.recv_exit_status)
        return 255 if code < 0 else code

    async def close(self) -> None:
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError, Unreachable):
            await self._connection.call(self._channel.close)
        self._closed()


class _News(threading.Event):
    """Set by the library's thread whenever something has arrived, and passed on to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.awaited = asyncio.Event()
        self._loop = loop

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.awaited.set)
