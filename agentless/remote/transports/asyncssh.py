"""SSH in the event loop, with asyncssh: the default way to reach a node."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import asyncssh

from agentless.errors import HostKeyRejected, Unreachable
from agentless.model.nodes.node import NodeConfig
from agentless.model.terminal import Size
from agentless.remote.packets import CIPHERS, send_no_empty_ones
from agentless.remote.transports._flow import Flow
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
from agentless.remote.transports._ssh.proxy import Proxy
from agentless.remote.transports._ssh.route import Hop, SshFiles

KEEPALIVE = 15.0
"""Seconds of silence after which the node is asked for an answer; after three in vain the connection is broken."""
_CERTIFICATE = "-cert-v01@openssh.com"


def make(node: NodeConfig, ssh: SshFiles) -> SshTransport[_Connection]:
    """A transport to the node."""
    return SshTransport(node, ssh, _dial)


async def _dial(hop: Hop, through: _Connection | Proxy | None, *, certified: bool = True) -> _Connection:
    """As `Dial`; `certified` is whether the host may show a certificate."""
    client = _Client(hop)
    known = client.known
    authorities = known.authorities if certified else ()
    algorithms = known.algorithms()
    if authorities:
        algorithms = [algorithm + _CERTIFICATE for algorithm in algorithms] + algorithms
    agent, held = await _agent(hop)
    keys, tried = offer(hop, held, _Keys())
    try:
        library = await asyncssh.connect(
            hop.host,
            hop.port,
            config=None,
            username=hop.user,
            client_factory=lambda: client,
            client_keys=keys or None,
            preferred_auth="publickey",
            gss_host=None,
            # Plain keys are checked here: for a revoked one the library only reports that the connection has ended.
            known_hosts=([], _encoded(authorities), _encoded(known.revoked if authorities else ())),
            server_host_key_algs=algorithms,
            host_key_alias=hop.host_key_alias,
            tunnel=through.library if isinstance(through, _Connection) else (),
            sock=await through.start() if isinstance(through, Proxy) else None,
            encryption_algs=CIPHERS,
            compression_algs=None,
            keepalive_interval=KEEPALIVE,
            keepalive_count_max=3,
        )
    except asyncssh.ChannelOpenError as error:
        raise not_forwarded(hop.where, error.code, error.reason) from None
    except (asyncssh.Error, ValueError) as error:
        if client.rejected is not None:
            raise client.rejected from None
        if client.other_authority:
            if isinstance(through, Proxy):
                await through.close()
            return await _dial(hop, through, certified=False)
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            raise Unreachable(
                f"{hop.where} presents an invalid host certificate: {error}; have it renewed for this name on the "
                "machine, or set HostKeyAlias in ~/.ssh/config to the name that it has"
            ) from None
        if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in str(error):
            raise tried.refused(hop) from None
        if isinstance(error, asyncssh.KeyExchangeFailed):
            raise Unreachable(f"{hop.where} cannot agree on a connection: {error}; update its SSH server") from None
        raise broke_off(hop, NO_GREETING if isinstance(error, UnicodeError) else error) from None
    finally:
        if agent is not None:
            agent.close()
    return _Connection(hop.name, library)


def _encoded(keys: Iterable[str]) -> list[bytes]:
    return [key.encode() for key in keys]


async def _agent(hop: Hop) -> tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]:
    """The SSH agent and the keys that it holds; one that cannot be reached holds none."""
    if hop.agent is None:
        return None, []
    try:
        agent = await asyncssh.connect_agent(hop.agent)
    except OSError:
        return None, []
    with contextlib.suppress(ValueError):
        return agent, list(await agent.get_keys())
    return agent, []


class _Keys:
    """As `Library`."""

    def load(self, path: Path) -> asyncssh.SSHKeyPair:
        try:
            # The validation takes 0.2 s of an RSA key, for every node, and is against keys from somebody else.
            key = asyncssh.read_private_key(path, unsafe_skip_rsa_key_validation=True)
        except asyncssh.KeyImportError as error:
            raise Encrypted if str(error).startswith("Passphrase") else error from None
        return asyncssh.load_keypairs([key])[0]

    def blob(self, key: asyncssh.SSHKeyPair) -> bytes:
        return key.public_data

    def certify(self, key: asyncssh.SSHKeyPair, certificate: Path) -> asyncssh.SSHKeyPair:
        twin = copy.copy(key)
        twin.set_certificate(asyncssh.read_certificate(certificate))
        return twin


class _Client(asyncssh.SSHClient):
    """Judges the host key."""

    def __init__(self, hop: Hop) -> None:
        self.known = hop.host_keys()
        self.rejected: HostKeyRejected | None = None
        self.other_authority = False
        self._node = hop.node

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        send_no_empty_ones(conn)

    def validate_host_public_key(self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey) -> bool:
        try:
            self.known.check(" ".join(key.export_public_key("openssh").decode().split()[:2]), self._node)
        except HostKeyRejected as rejected:
            self.rejected = rejected
        return self.rejected is None

    def validate_host_ca_key(self, _host: str, _addr: str, _port: int, _key: asyncssh.SSHKey) -> bool:
        self.other_authority = True  # only asked about one that is not on record
        return False


class _Connection:
    """A login."""

    def __init__(self, name: str, library: asyncssh.SSHClientConnection) -> None:
        self.library = library
        self._name = name

    @property
    def alive(self) -> bool:
        return not self.library.is_closed()

    @property
    def single(self) -> bool:
        return is_single(str(self.library.get_extra_info("server_version")))

    async def shell(self, closed: Callable[[], None]) -> _Shell:
        return await self._session(closed, "exec sh", request_pty=False)

    async def terminal(self, closed: Callable[[], None], script: str, size: Size) -> _Shell:
        shape = {"term_type": TERM, "term_size": (size.columns, size.rows)}
        return await self._session(closed, login_words(script), request_pty="force", **shape)

    async def _session(self, closed: Callable[[], None], command: str, **terminal: Any) -> _Shell:
        try:
            _, shell = await self.library.create_session(
                lambda: _Shell(self._name, self.library, closed), command, encoding=None, **terminal
            )
        except (asyncssh.Error, OSError, AttributeError) as error:
            # If a connection is closed while a session opens, the library forgets that session, and fails.
            if not self.alive:
                raise Unreachable(f"{self._name} closed the connection") from None
            if isinstance(error, AttributeError):
                raise
            if isinstance(error, asyncssh.ChannelOpenError):
                if error.code == asyncssh.OPEN_REQUEST_PTY_FAILED:
                    raise no_terminal(self._name) from None
                if error.code != asyncssh.OPEN_REQUEST_SESSION_FAILED:
                    raise ChannelRefused(error.reason) from None
            raise no_command(self._name, error) from None
        return cast(_Shell, shell)

    async def close(self) -> None:
        self.library.abort()
        await self.library.wait_closed()


class _Shell(Flow, asyncssh.SSHClientSession[bytes]):
    def __init__(self, name: str, connection: asyncssh.SSHClientConnection, closed: Callable[[], None]) -> None:
        super().__init__()
        self._name = name
        self._connection = connection
        self._closed = closed
        self._code: int | None = None
        self._gone = asyncio.Event()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.feed(2 if datatype else 1, data)

    def eof_received(self) -> bool:
        self.finish()
        return True

    def exit_status_received(self, status: int) -> None:
        self._code = status
        self._gone.set()

    def exit_signal_received(self, name: str, _core_dumped: bool, _message: str, _language: str) -> None:
        self._code = 128 + getattr(signal, f"SIG{name}", 127)
        self._gone.set()

    def connection_lost(self, exc: Exception | None) -> None:
        # The library closes the channels of a connection before the connection itself, in one go.
        asyncio.get_running_loop().call_soon(self._lost, exc)

    def _lost(self, exc: Exception | None) -> None:
        silent = exc is not None and "keepalive" in str(exc)
        broken = exc is not None or self._connection.is_closed()
        what = "no longer answers" if silent else "closed the connection"
        self.finish(Unreachable(f"{self._name} {what}") if broken else None)
        self._gone.set()

    def hold(self, paused: bool) -> None:
        if paused:
            self._channel.pause_reading()
        else:
            self._channel.resume_reading()

    async def write(self, data: bytes) -> None:
        if not self._channel.is_closing():
            self._channel.write(data)
            await self.may_send()

    async def write_eof(self) -> None:
        if not self._channel.is_closing():
            self._channel.write_eof()

    async def resize(self, size: Size) -> None:
        if not self._channel.is_closing():
            self._channel.change_terminal_size(size.columns, size.rows)

    async def wait(self) -> int:
        await self._gone.wait()
        return 255 if self._code is None else self._code

    async def close(self) -> None:
        self._channel.abort()
        self.finish()
        self._closed()
