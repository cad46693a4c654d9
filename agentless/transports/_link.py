"""A transport over any SSH library: the way to the node, the jump hosts that nodes share, and who may start when."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from agentless.errors import Unreachable
from agentless.model.node import NodeConfig
from agentless.model.terminal import Size
from agentless.ports import Shell, Terminal
from agentless.transports._route import Hop, SshFiles, route

STARTS = 10
"""Connections being started at once through one jump host: OpenSSH drops some of those beyond (MaxStartups)."""


class Connection(Protocol):
    """A login on one machine, as an SSH library gives it."""

    @property
    def alive(self) -> bool:
        """Whether it still holds, as far as is known."""

    async def shell(self) -> Shell:
        """As `Transport.shell`."""

    async def terminal(self, script: str, size: Size) -> Terminal:
        """As `Transport.terminal`."""

    async def close(self) -> None:
        """End it, whatever is left of it. Never raises."""


C = TypeVar("C", bound=Connection)
Dial = Callable[[Hop, C | None], Awaitable[C]]
"""Log in to a machine, directly or through a connection to the one before it. May raise OSError besides ours."""


class SshTransport(Generic[C]):
    """A node that is reached with `dial`."""

    def __init__(self, node: NodeConfig, files: SshFiles, dial: Dial[C]) -> None:
        self._node = node
        self._files = files
        self._dial = dial
        self._login: _Login[C] | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> None:
        """As `Transport.connect`; the SSH configuration is read each time, since it may have been corrected."""
        async with self._connecting:
            if self._login is not None and self._login.alive:
                return
            await self.close()
            hops = await asyncio.to_thread(route, self._node, self._files)
            self._login = _Login(hops, self._files.connect_timeout, self._dial)
            try:
                await self._login.open()
            except BaseException:
                await self.close()
                raise

    async def shell(self) -> Shell:
        """As `Transport.shell`; a connection that has broken is not made again unasked."""
        return await (await self._open()).shell()

    async def terminal(self, script: str, size: Size) -> Terminal:
        """As `Transport.terminal`; likewise."""
        return await (await self._open()).terminal(script, size)

    async def _open(self) -> C:
        if self._login is None or not self._login.alive:
            raise Unreachable(f"{self._node.name} closed the connection")
        return await self._login.open()

    async def close(self) -> None:
        """As `Transport.close`."""
        login, self._login = self._login, None
        if login is not None:
            await login.close()


class _Login(Generic[C]):
    """A login on the last of some machines; that on the one before it is shared with whoever needs it too."""

    def __init__(self, hops: tuple[Hop, ...], timeout: float, dial: Dial[C]) -> None:
        self._hop = hops[-1]
        self._timeout = timeout
        self._dial = dial
        self._connection: C | None = None
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
        """Whether it holds now."""
        return self._connection is not None and self._connection.alive

    async def open(self) -> C:
        """The connection; all who want it while it is being made share that one try."""
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> C:
        if self._connection is not None:
            await self._connection.close()
        through = await self._jump.open() if self._jump is not None else None
        async with self._starts:
            try:
                async with asyncio.timeout(self._timeout):
                    self._connection = await self._dial(self._hop, through)
            except TimeoutError:
                raise Unreachable(
                    f"{self._hop.where} did not answer within {self._timeout:g} s; see whether it is up and whether "
                    "a firewall is in the way"
                ) from None
            except OSError as error:
                raise Unreachable(
                    f"{self._hop.where} cannot be reached: {_reason(error)}; see whether it is up and whether its "
                    "host and port are right"
                ) from error
        return self._connection

    async def close(self) -> None:
        """End it, and the logins that only it needed."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
            if not self._opening.cancelled():
                self._opening.exception()
        if self._connection is not None:
            await self._connection.close()
        if self._jump is not None:
            self._jump.users.discard(self)
            if not self._jump.users:
                _shared[asyncio.get_running_loop()].pop(self._key, None)
                await self._jump.close()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, Any]] = WeakKeyDictionary()
_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, asyncio.Semaphore]] = WeakKeyDictionary()


def _gate(key: object) -> contextlib.AbstractAsyncContextManager[Any]:
    """What a start has to pass; one for all that share `key`, none without a key."""
    if not key:
        return contextlib.nullcontext()
    gates = _gates.setdefault(asyncio.get_running_loop(), {})
    return gates.setdefault(key, asyncio.Semaphore(STARTS))


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    return os.strerror(error.errno) if error.errno else str(error)
