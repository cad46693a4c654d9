"""What stands before a server and takes only so many connections at once."""

from __future__ import annotations

import asyncio
import contextlib

from tests.real.transports.sshd import Sshd


@contextlib.asynccontextmanager
async def relayed(server: Sshd, connections: int):
    """The port of a relay to a server, which drops each connection beyond; the server's user knows it."""
    open_now = 0

    async def relay(reader, writer):
        nonlocal open_now
        open_now += 1
        try:
            if open_now <= connections:
                there = await asyncio.open_connection("127.0.0.1", server.port)
                await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
        finally:
            open_now -= 1
            writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        known = server.known_hosts.read_text()
        server.known_hosts.write_text(known + known.replace(f":{server.port} ", f":{port} "))
        yield port


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All bytes from one to the other, up to the end."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
