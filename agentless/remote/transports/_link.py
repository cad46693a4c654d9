"""A transport over any SSH library: the way to the node, shared jump hosts, and a limit on logins at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Generic
from weakref import WeakKeyDictionary

from agentless.errors import AuthFailed, HostKeyRejected, NobodyThere, Unreachable
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.sessions import Sessions
from agentless.model.terminal import Size
from agentless.ports import Shell, Terminal
from agentless.remote.transports._pool import C, Pool
from agentless.remote.transports._ssh.proxy import Proxy, ProxyError
from agentless.remote.transports._ssh.route import Hop, SshFiles, routes
from agentless.remote.transports._ways import first

STARTS = 10
"""Logins at once through one jump host: OpenSSH drops some if there are more (MaxStartups)."""


Dial = Callable[[Hop, C | Proxy | None], Awaitable[C]]
"""Log in to a machine: directly, through a connection to the one before it, or through a program that it starts.

May raise OSError besides our own errors."""


class SshTransport(Generic[C]):
    """A node that is reached with `dial`."""

    def __init__(self, node: NodeConfig, files: SshFiles, dial: Dial[C]) -> None:
        self._node = node
        self._files = files
        self._dial = dial
        self._pool: Pool[C] | None = None
        self._last: Hop | None = None
        self._connecting = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """As `Transport.alive`."""
        return self._pool is not None and self._pool.alive

    @property
    def sessions(self) -> Sessions | None:
        """As `Transport.sessions`."""
        return self._pool.sessions if self._pool is not None and self._pool.alive else None

    @property
    def address(self) -> str:
        """As `Transport.address`."""
        return self._last.address if self._last and self._node.addresses and self.alive else ""

    async def connect(self) -> None:
        """As `Transport.connect`; reads the SSH configuration each time, since it may have changed."""
        async with self._connecting:
            if self.alive:
                return
            await self.close()
            ways = await asyncio.to_thread(routes, self._node, self._files)
            ways.sort(key=lambda way: way[-1] != self._last)
            self._pool, way = await first({self._pool_of(way): way for way in ways}, self._node.name)
            self._last = way[-1]

    def _pool_of(self, way: tuple[Hop, ...]) -> Pool[C]:
        return Pool(self._node.name, lambda: _Login(way, self._files.connect_timeout, self._dial))

    async def shell(self, *, own: bool = False, wait: bool = True) -> Shell:
        """As `Transport.shell`; does not reconnect."""
        return await self._connected().session(lambda connection, closed: connection.shell(closed), own=own, wait=wait)

    async def terminal(self, script: str, size: Size) -> Terminal:
        """As `Transport.terminal`; likewise."""
        return await self._connected().session(lambda connection, closed: connection.terminal(closed, script, size))

    def _connected(self) -> Pool[C]:
        if self._pool is None:
            raise Unreachable(f"{self._node.name} closed the connection")
        return self._pool

    async def close(self) -> None:
        """As `Transport.close`."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


class _Login(Generic[C]):
    """A login on the last of some machines. The login on the one before it is shared by all that need it."""

    def __init__(self, hops: tuple[Hop, ...], timeout: float, dial: Dial[C]) -> None:
        self._hop = hops[-1]
        self._timeout = timeout
        self._dial = dial
        self._connection: C | None = None
        self._proxy: Proxy | None = None
        self._opening: asyncio.Task[C] | None = None
        self.users: set[_Login[C]] = set()
        self._jump: _Login[C] | None = None
        self._starts = _gate(hops[:-1] or self._hop.gate)
        if len(hops) > 1:
            shared = _shared.setdefault(asyncio.get_running_loop(), {})
            self._key = (dial, hops[:-1])
            self._jump = shared.get(self._key) or shared.setdefault(self._key, _Login(hops[:-1], timeout, dial))
            self._jump.users.add(self)

    @property
    def alive(self) -> bool:
        """Whether the login is connected."""
        return self._connection is not None and self._connection.alive

    async def open(self) -> C:
        """The connection. All that ask while it is being made share that try."""
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> C:
        await self._hang_up()
        if self._hop.proxy_command is not None:
            self._proxy = Proxy(self._hop.proxy_command)
        through = await self._jump.open() if self._jump is not None else None
        async with self._starts:
            try:
                async with asyncio.timeout(within := self._hop.connect_timeout or self._timeout):
                    self._connection = await self._dial(self._hop, through or self._proxy)
            except TimeoutError:
                if self._proxy is not None and not self._proxy.connected:
                    raise NobodyThere(
                        await self._not_through(self._proxy, f"did not connect within {within:g} s")
                    ) from None
                raise await self._failed(
                    f"{self._hop.where} did not answer within {within:g} s; check that it is up and that no "
                    "firewall blocks the connection"
                ) from None
            except ProxyError as error:
                raise Unreachable(await self._not_through(error.proxy, str(error))) from None
            except OSError as error:
                raise await self._failed(
                    f"{self._hop.where} cannot be reached: {_reason(error)}; check that it is up and that "
                    "host and port are right"
                ) from error
            except (AuthFailed, HostKeyRejected):
                raise
            except Unreachable as error:
                raise await self._failed(str(error)) from None
        return self._connection

    async def _not_through(self, proxy: Proxy, what: str) -> str:
        """The message about a proxy command that has not reached the machine. It may want a login, or a person."""
        words = await proxy.last_words()
        said = f" and printed: {words.removesuffix('.')}" if words else " and printed nothing"
        return (
            f"{self._hop.where}: its ProxyCommand {proxy.name} {what}{said}; run `{self._hop.by_hand}` in "
            "a terminal, and log in there if it asks"
        )

    async def _failed(self, message: str) -> Unreachable:
        """The message, with what the proxy command says about it."""
        words = await self._proxy.last_words() if self._proxy is not None else ""
        return Unreachable(f"{message}; its ProxyCommand printed: {words}" if words else message)

    async def _hang_up(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        if self._proxy is not None:
            await self._proxy.close()
        self._connection = self._proxy = None

    async def close(self) -> None:
        """End it, and each login that nothing else needs."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
            if not self._opening.cancelled():
                self._opening.exception()
        await self._hang_up()
        if self._jump is not None:
            self._jump.users.discard(self)
            if not self._jump.users:
                _shared[asyncio.get_running_loop()].pop(self._key, None)
                await self._jump.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, Any]] = WeakKeyDictionary()
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, asyncio.Semaphore]] = WeakKeyDictionary()


def _gate(key: object) -> contextlib.AbstractAsyncContextManager[Any]:
    """The limit for a login; one for all with the same `key`, none without a key."""
    if not key:
        return contextlib.nullcontext()
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    return gates.setdefault(key, asyncio.Semaphore(STARTS))


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    return os.strerror(error.errno) if error.errno else str(error)
