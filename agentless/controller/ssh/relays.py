"""Connections with ports in a container, each through a program there; its template has the protocol."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from agentless.controller.nodes.login import Login
from agentless.controller.nodes.program import Program
from agentless.controller.ssh.warm import Taken, Warm
from agentless.errors import Refused
from agentless.model.text import printable
from agentless.remote.concurrency import cancel

ANSWER = 4096
"""Bytes of a reason why a port cannot be reached."""
SPARES = 3
"""Programs that are ready for the next connections: a browser opens several at once."""
KEPT = 60.0
"""Seconds for which programs are still ready after the last connection."""
MOST = 16
"""Connections at once with the ports of one container: each has a session of its node's SSH server."""
PATIENCE = 20.0
"""Seconds for which a further one waits for its turn."""


class _Ended(Exception):
    """The program has ended without a word."""


@dataclass(frozen=True)
class Relay:
    """A connection. `first` is what the port has sent already; `end` closes it."""

    program: Program
    end: Callable[[], object]
    first: bytes


class Relays:
    """The connections with the ports of one container."""

    def __init__(self, login: Login) -> None:
        self._warm = Warm(login.relay, SPARES)
        self._places = asyncio.Semaphore(MOST)
        self.close = self._warm.close

    async def connect(self, host: str, port: int) -> Relay:
        """Reach a port from within the container; raises Refused with the reason."""
        if not host.isprintable() or not host or " " in host:
            raise Refused("no such host")
        try:
            async with asyncio.timeout(PATIENCE):
                await self._places.acquire()
        except TimeoutError:
            raise Refused(f"{MOST} connections with the container are open; close some") from None
        try:
            return await self._connect(host, port)
        except BaseException:
            self._places.release()
            raise

    async def _connect(self, host: str, port: int) -> Relay:
        for _ in range(SPARES + 1):  # those that were ready may have ended long ago, with the container
            with suppress(_Ended):
                return await self._connect_by(await self._warm.take(), host, port)
        raise Refused("the program in the container ended")

    async def _connect_by(self, taken: Taken, host: str, port: int) -> Relay:
        try:
            await taken.program.write(f"{host} {port}\n".encode())
            answer = b""
            while not answer.startswith(b"+"):
                chunk = await taken.program.read()
                if chunk is None and not answer:
                    raise _Ended
                if chunk is None or len(answer) > ANSWER:
                    raise Refused(printable(answer[1:].decode("utf-8", "replace")) or "refused")
                answer += chunk[1] if chunk[0] == 1 else b""
        except BaseException:
            taken.end()
            raise
        return Relay(taken.program, partial(self._end, taken), answer[1:])

    def _end(self, taken: Taken) -> None:
        taken.end()
        self._places.release()


class SharedRelays:
    """The relays of all containers. All who connect with ports of one container share its ready program."""

    def __init__(self) -> None:
        self._relays: dict[str, Relays] = {}
        self._users: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def of(self, login: Login) -> AsyncIterator[Relays]:
        """Those of one container, while somebody uses them."""
        key = login.container
        self._users[key] += 1
        try:
            if key not in self._relays:
                self._relays[key] = Relays(login)
            yield self._relays[key]
        finally:
            self._users[key] -= 1
            closing = asyncio.create_task(self._close_later(key))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all of them."""
        await cancel(*self._closing)
        for relays in self._relays.values():
            await relays.close()

    async def _close_later(self, key: str) -> None:
        await asyncio.sleep(KEPT)
        if not self._users[key] and key in self._relays:
            await self._relays.pop(key).close()
