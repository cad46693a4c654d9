"""Scripts on nodes that are written to while they are read, with marks between the parts of their output."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import pytest

from agentless.controller.nodes.conversation import NoMark, conversed, until_mark
from agentless.errors import RuntimeFailed, TooMuch, Unreachable
from agentless.remote.worker import GREETING

Chunk = tuple[int, bytes]


class Script:
    """A shell that prints these; those after `None` not before its input has ended."""

    def __init__(self, *printed: Chunk | None) -> None:
        self.taken = b""
        self._printed = deque(printed)
        self._ended = asyncio.Event()

    async def read(self) -> Chunk | None:
        await asyncio.sleep(0)
        if self._printed and self._printed[0] is None:
            await self._ended.wait()
            self._printed.popleft()
        return self._printed.popleft() if self._printed else None

    async def write(self, data: bytes) -> None:
        self.taken += data

    async def write_eof(self) -> None:
        self._ended.set()

    async def wait(self) -> int:
        return 3

    async def close(self) -> None:
        raise AssertionError


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


def test_what_follows_the_mark_is_the_answer() -> None:
    async def check() -> None:
        script = Script((1, b"hello ma"), (2, b"warning"), (1, b"rk;and "), None, (1, b"more"))
        result = await conversed(script, "mark", pieces(b"in", b"put"))
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"and more", b"warning")
        assert script.taken == b"input"

    asyncio.run(check())


def test_output_is_heard_up_to_a_second_mark() -> None:
    async def check() -> None:
        heard: list[bytes] = []
        script = Script((1, b"mark;step 1 ma"), (1, b"ma"), None, (1, b"rk;answer"))
        result = await conversed(script, "mark", pieces(), heard.append)
        assert (b"".join(heard), result.stdout) == (b"step 1 ma", b"answer")

    asyncio.run(check())


def test_a_script_that_ends_before_its_mark_has_said_why() -> None:
    async def check() -> None:
        with pytest.raises(RuntimeFailed, match=r"^no such file$"):
            await conversed(Script((1, b"x"), (2, b"no such\n file\n")), "mark", pieces())
        with pytest.raises(NoMark) as end:
            await until_mark(Script((1, b"x"), (2, b"y")), "mark", "too much")
        assert (end.value.out, end.value.err) == (b"x", b"y")

    asyncio.run(check())


def test_a_script_that_prints_on_and_on_is_given_up() -> None:
    async def check() -> None:
        with pytest.raises(TooMuch, match=r"^too much$"):
            await until_mark(Script((2, bytes(GREETING)), (1, b"x")), "mark", "too much")

    asyncio.run(check())


def test_what_goes_wrong_with_the_input_ends_it() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"in"
        raise Unreachable("gone")

    async def check() -> None:
        with pytest.raises(Unreachable, match="gone"):
            await conversed(Script((1, b"mark;"), None, (1, b"never")), "mark", broken())

    asyncio.run(check())
