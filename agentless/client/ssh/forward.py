"""Ports of this machine that lead to ports in a container."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentless.client.ssh.proxy import CHUNK, WITHIN, ask, check
from agentless.errors import Refused, UsageError

HOST = "localhost"
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class Ports:
    """A port in a container, and the one of this machine that leads there."""

    there: int
    here: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `PORT` or `PORT:LOCAL`; raises UsageError."""
        words = text.split(":")
        if len(words) > 2 or not all(word.isascii() and word.isdigit() and 0 < int(word[:6]) < 65536 for word in words):
            raise UsageError(f"{text[:40]!r} is no port; use PORT or PORT:LOCAL, such as 8888 or 8888:9999")
        return cls(int(words[0]), int(words[-1]))


class Forward:
    """Forwards ports while it is open. Each connection reaches the task anew, whatever has happened to it meanwhile."""

    def __init__(self, state: Path, inventory: Path | None, task: str, tell: Callable[[str], None]) -> None:
        self._state, self._inventory = str(state), str(inventory or "")
        self._task = task
        self._tell = tell
        self._said: str | None = None

    async def run(self, ports: list[Ports], ready: Callable[[], None]) -> None:
        """Listen on loopback until this is cancelled. Raises Refused if a port is taken."""
        async with contextlib.AsyncExitStack() as stack:
            for each in ports:
                for address in _ADDRESSES:
                    await self._listen(stack, address, each)
            ready()
            await asyncio.Event().wait()

    async def _listen(self, stack: contextlib.AsyncExitStack, address: str, ports: Ports) -> None:
        async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._attend(reader, writer, ports.there)

        try:
            stack.push_async_exit(await asyncio.start_server(attend, address, ports.here))
        except OSError as error:
            if address == _ADDRESSES[0]:
                raise Refused(
                    f"cannot listen on port {ports.here} of this machine ({os.strerror(error.errno or 0)}); choose "
                    f"another one: agentless forward {self._task} {ports.there}:{ports.here + 1}"
                ) from None

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        """Carry one connection."""
        there: asyncio.StreamWriter | None = None
        sending: asyncio.Task[None] | None = None
        reached = False
        try:
            connection = await asyncio.to_thread(ask, self._state, self._inventory, self._task, port)
            back, there = await asyncio.open_connection(sock=connection)
            sending = asyncio.create_task(_copy(reader, there))  # which need not wait for the answer
            try:
                check(await asyncio.wait_for(back.readline(), WITHIN))
            except TimeoutError:
                raise Refused(f"the controller has not answered for {WITHIN:g} s") from None
            reached, self._said = True, None
            await asyncio.gather(sending, _copy(back, writer))
        except Exception as error:  # noqa: BLE001 - this connection is over; the next one may work
            if not reached and self._said != str(error):
                self._said = str(error)
                self._tell(f"port {port}: {error}")
        finally:
            if sending:
                sending.cancel()
                await asyncio.wait([sending])
            for each in filter(None, (writer, there)):
                each.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
