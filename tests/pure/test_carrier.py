"""Many connections through one program: the real one of the template, in a process here, and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agentless.controller.ssh.ports.carrier import WINDOW, Carrier, Ended
from agentless.controller.ssh.ports.warm import Taken
from agentless.errors import Refused
from agentless.formats.frames import frame
from agentless.paths import template_dir
from agentless.render import Renderer

SCRIPT = Renderer([template_dir()]).script("container-carrier.sh.j2")
WITHIN = 30
pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="no python3 here")


class Process:
    """A program as the controller has it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> tuple[int, bytes] | None:
        data = await self._process.stdout.read(65536)
        return (1, data) if data else None

    async def write(self, data: bytes) -> None:
        self._process.stdin.write(data)
        await self._process.stdin.drain()


class Said:
    """A program that prints what it is told to."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def read(self) -> tuple[int, bytes] | None:
        await asyncio.sleep(0)
        return (1, self._chunks.pop(0)) if self._chunks else None

    async def write(self, data: bytes) -> None:
        pass


@contextlib.asynccontextmanager
async def carrying() -> AsyncIterator[Carrier]:
    process = await asyncio.create_subprocess_exec("sh", "-c", SCRIPT, stdin=-1, stdout=-1)
    assert await process.stdout.readexactly(1) == b"*"
    carrier = Carrier(Taken(Process(process), lambda: None))
    try:
        yield carrier
    finally:
        await carrier.close()
        process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def serving(attend: Callable[..., Awaitable[None]], host="127.0.0.1") -> AsyncIterator[int]:
    server = await asyncio.start_server(attend, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def connect(carrier, port, host="localhost"):
    connection = carrier.begin(host, port)
    await connection.opened()
    return connection


async def everything(connection):
    found = b""
    while data := await connection.read():
        found += data
    return found


async def echo(reader, writer):
    """Sends all back when its input has ended."""
    data = await reader.read()
    writer.write(data)
    await writer.drain()
    writer.close()


def in_time(work):
    return asyncio.run(asyncio.wait_for(work, WITHIN))


def test_each_connection_has_its_own_bytes_and_may_end_its_input():
    async def work():
        async with carrying() as carrier, serving(echo) as port:
            data = [os.urandom(3 * WINDOW + number) for number in range(5)]

            async def one(sent):
                connection = carrier.begin("localhost", port)  # what is sent need not wait for the answer

                async def send():
                    await connection.write(sent)
                    await connection.write_eof()

                sending = asyncio.create_task(send())
                found = await everything(connection)
                await sending
                return found

            assert await asyncio.gather(*map(one, data)) == data

    in_time(work())


def test_a_port_that_nobody_listens_on_has_a_reason_and_the_others_go_on():
    async def work():
        async with carrying() as carrier, serving(echo) as port:
            other = await connect(carrier, port)
            with pytest.raises(Refused, match=r"[Rr]efused"):
                await connect(carrier, 1)
            with pytest.raises(Refused):
                await connect(carrier, 65536 + port)
            await other.write(b"well")
            await other.write_eof()
            assert await everything(other) == b"well"

    in_time(work())


def test_an_address_is_reached_that_is_not_the_first_loopback():
    async def work():
        async with carrying() as carrier, serving(echo, "127.0.0.2") as port:
            connection = await connect(carrier, port, "127.0.0.2")
            await connection.write_eof()
            assert await everything(connection) == b""

    in_time(work())


def test_it_ends_with_its_input():
    done = subprocess.run(["sh", "-c", SCRIPT], input=b"", capture_output=True, timeout=WITHIN, check=True)
    assert done.stdout == b"*"


def test_a_reader_that_is_slow_neither_stops_the_others_nor_piles_up():
    async def work():
        sent = 0

        async def flood(reader, writer):
            nonlocal sent
            with contextlib.suppress(OSError):
                while True:
                    writer.write(bytes(65536))
                    await writer.drain()
                    sent += 65536

        async with carrying() as carrier, serving(flood) as port, serving(echo) as quick:
            slow = await connect(carrier, port)
            for _ in range(20):
                other = await connect(carrier, quick)
                await other.write(b"x" * WINDOW)
                await other.write_eof()
                assert len(await everything(other)) == WINDOW
            assert slow._unread <= WINDOW
            before = sent
            for _ in range(64):
                await slow.read()
            while sent == before:  # it goes on where it stood
                await slow.read()
            slow.end()

    in_time(work())


def test_a_port_that_takes_nothing_stops_only_who_sends_to_it():
    async def work():
        async def deaf(reader, writer):
            await asyncio.Event().wait()

        async with carrying() as carrier, serving(deaf) as port, serving(echo) as quick:
            stuck = await connect(carrier, port)
            sending = asyncio.create_task(stuck.write(bytes(64 * WINDOW)))
            for _ in range(20):
                other = await connect(carrier, quick)
                await other.write(b"x" * 1000)
                await other.write_eof()
                assert len(await everything(other)) == 1000
            assert not sending.done()
            stuck.end()
            sending.cancel()

    in_time(work())


def test_who_leaves_closes_the_connection_with_the_port():
    async def work():
        left = asyncio.Event()

        async def attend(reader, writer):
            await reader.read()
            left.set()

        async with carrying() as carrier, serving(attend) as port:
            (await connect(carrier, port)).end()
            await left.wait()

    in_time(work())


def test_all_end_with_the_program():
    async def work():
        process = await asyncio.create_subprocess_exec("sh", "-c", SCRIPT, stdin=-1, stdout=-1)
        await process.stdout.readexactly(1)
        carrier = Carrier(Taken(Process(process), lambda: None))
        async with serving(echo) as port:
            connection = await connect(carrier, port)
            process.kill()
            assert await connection.read() == b""
            with pytest.raises(Ended):
                carrier.begin("localhost", port)
        await carrier.close()
        await process.communicate()

    in_time(work())


NUMBER = struct.pack("!I", 1)


@pytest.mark.parametrize(
    "said",
    [
        frame(0, NUMBER) + b"".join(frame(1, NUMBER + bytes(65536)) for _ in range(9)),
        frame(0, NUMBER) + frame(4, NUMBER + b"12"),
        frame(1, b"12"),
        b"\1\xff\xff\xff\xff",
    ],
    ids=["more than its window", "a number that is none", "no number", "a frame without end"],
)
def test_a_program_that_breaks_the_rules_is_ended(said):
    async def work():
        ended = asyncio.Event()
        carrier = Carrier(Taken(Said(said), ended.set))
        connection = carrier.begin("localhost", 1)
        await ended.wait()
        assert carrier.ended
        with contextlib.suppress(Ended):
            await connection.opened()
        assert len(await everything(connection)) <= WINDOW
        await carrier.close()

    in_time(work())
