"""Connections with ports in a container: through one program there that carries them all, else each through its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from agentless.controller.nodes.login import Login
from agentless.controller.ssh.ports.carrier import REASON, Carrier, Ended
from agentless.controller.ssh.ports.warm import Taken, Warm
from agentless.errors import Refused
from agentless.model.text import printable
from agentless.remote.concurrency import cancel

SPARES = 3
"""Programs that are ready for the next connections: a browser opens several at once."""
KEPT = 60.0
"""Seconds for which programs are still ready after the last connection."""
MOST = 16
"""Connections at once, if each is a program, with a session of its node's SSH server."""
MOST_CARRIED = 100
"""The same, if one program carries them."""
PATIENCE = 20.0
"""Seconds for which a further one waits for its turn."""
_ENDED = "the program in the container ended"


class Connection(Protocol):
    """A connection with a port."""

    async def opened(self) -> None:
        """Wait until the port is reached; raises Refused with the reason, and Ended if the program has ended."""

    async def read(self) -> bytes:
        """What the port has sent; nothing at its end."""

    async def write(self, data: bytes) -> None:
        """Send; waits while the port does not take more."""

    async def write_eof(self) -> None:
        """Send no more."""

    def end(self) -> object:
        """Close it."""


@dataclass(frozen=True)
class Relay:
    """A connection, and what closes it and gives its place to others."""

    connection: Connection
    end: Callable[[], object]

    async def opened(self) -> None:
        """Wait until the port is reached; raises Refused with the reason."""
        try:
            await self.connection.opened()
        except Ended:
            raise Refused(_ENDED) from None


class _OwnProgram:
    """A connection that is a program; its template has the protocol. `first` is what the port has sent already."""

    def __init__(self, taken: Taken, first: bytes) -> None:
        self._program, self._first = taken.program, first
        self.end = taken.end
        self.write, self.write_eof = self._program.write, self._program.write_eof

    async def opened(self) -> None:
        """It is."""

    async def read(self) -> bytes:
        """As `Connection.read`."""
        data, self._first = self._first, b""
        while not data:
            chunk = await self._program.read()
            if chunk is None:
                break
            data = chunk[1] if chunk[0] == 1 else b""
        return data


class Relays:
    """The connections with the ports of one container."""

    def __init__(self, login: Login) -> None:
        self._carriers, self._programs = Warm(login.carrier, 0), Warm(login.relay, SPARES)
        self._carrier: Carrier | None = None
        self._carries = True
        self._beginning = asyncio.Lock()
        self._places, self._carried_places = asyncio.Semaphore(MOST), asyncio.Semaphore(MOST_CARRIED)

    async def connect(self, host: str, port: int) -> Relay:
        """Reach a port from within the container; raises Refused with the reason."""
        relay = await self.begin(host, port)
        try:
            await relay.opened()
        except BaseException:
            relay.end()
            raise
        return relay

    async def begin(self, host: str, port: int) -> Relay:
        """Begin to reach a port: where that is possible, what is sent meanwhile need not wait."""
        if not host.isprintable() or not host or " " in host:
            raise Refused("no such host")
        for _ in range(SPARES + 1):  # those that were ready may have ended long ago, with the container
            with suppress(Ended):
                return await self._begin(host, port)
        raise Refused(_ENDED)

    async def close(self) -> None:
        """End all programs."""
        if self._carrier:
            await self._carrier.close()
        await self._carriers.close()
        await self._programs.close()

    async def _begin(self, host: str, port: int) -> Relay:
        carrier = await self._carrying()
        places = self._carried_places if carrier else self._places
        try:
            async with asyncio.timeout(PATIENCE):
                await places.acquire()
        except TimeoutError:
            most = MOST_CARRIED if carrier else MOST
            raise Refused(f"{most} connections with the container are open; close some") from None
        try:
            connection = carrier.begin(host, port) if carrier else await self._run(host, port)
        except BaseException:
            places.release()
            raise
        return Relay(connection, partial(_end, connection, places))

    async def _carrying(self) -> Carrier | None:
        """The program for all connections; None if the container has nothing that could be it."""
        async with self._beginning:
            if self._carries and (self._carrier is None or self._carrier.ended):
                taken = await self._carriers.take()
                try:
                    first = await _first_byte(taken)
                except Ended:
                    if self._carrier is not None:
                        raise  # it ended with its container
                    self._carries = False  # a python3 that cannot run
                    return None
                if first == b"*":
                    self._carrier = Carrier(taken)
                else:
                    self._carries, self._carrier = False, None
                    self._programs.keep(taken)
            return self._carrier

    async def _run(self, host: str, port: int) -> Connection:
        taken = await self._programs.take()
        try:
            await taken.program.write(f"{host} {port}\n".encode())
            answer = b""
            while not answer.startswith(b"+"):
                chunk = await taken.program.read()
                if chunk is None and not answer:
                    raise Ended
                if chunk is None or len(answer) > REASON:
                    raise Refused(printable(answer[1:].decode("utf-8", "replace")) or "refused")
                answer += chunk[1] if chunk[0] == 1 else b""
        except BaseException:
            taken.end()
            raise
        return _OwnProgram(taken, answer[1:])


async def _first_byte(taken: Taken) -> bytes:
    """The first byte that a program prints; raises Ended if it prints none."""
    try:
        while chunk := await taken.program.read():
            if chunk[0] == 1:
                return chunk[1][:1]
        raise Ended
    except BaseException:
        taken.end()
        raise


def _end(connection: Connection, places: asyncio.Semaphore) -> None:
    connection.end()
    places.release()


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
