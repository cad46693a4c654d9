"""A script on a node that takes bytes on its stdin, and prints marks where one part of its output ends."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable

from agentless.errors import RuntimeFailed, TooMuch
from agentless.model.command import ANSWER, Result
from agentless.model.text import last_words
from agentless.ports import Duplex, Shell
from agentless.remote.concurrency import feed
from agentless.remote.worker import GREETING


class NoMark(Exception):
    """A script has ended before it printed its mark; `out` and `err` are what it printed instead."""

    def __init__(self, out: bytes, err: bytes) -> None:
        super().__init__()
        self.out, self.err = out, err


async def until_mark(shell: Duplex, mark: str, flood: str) -> tuple[bytes, bytes]:
    """Read until a script has printed its mark and a semicolon: what has followed, and its standard error so far.

    Raises NoMark, and TooMuch with the words in `flood` for more than a shell may print before it begins.
    """
    wanted, seen = f"{mark};".encode(), {1: b"", 2: b""}
    while wanted not in seen[1]:
        chunk = await shell.read()
        if chunk is None:
            raise NoMark(seen[1], seen[2])
        seen[chunk[0]] += chunk[1]
        if len(seen[1]) + len(seen[2]) > GREETING:
            raise TooMuch(flood)
    return seen[1].partition(wanted)[2], seen[2]


async def conversed(
    shell: Shell, mark: str, data: AsyncIterable[bytes], heard: Callable[[bytes], None] | None = None
) -> Result:
    """Write to a script what it waits for once its mark has come, and give its output after that.

    `heard` gets the output as it comes, up to a second mark; then only what follows that one is given.
    """
    reader = _Reader(shell, mark, heard)
    await reader.begin()
    await feed(shell, data, reader.read())
    return Result(await shell.wait(), reader.out, reader.err)


class _Reader:
    """Reads a script to its end; `out` and `err` are what is left to give, of which there is no more than an answer."""

    def __init__(self, shell: Shell, mark: str, heard: Callable[[bytes], None] | None) -> None:
        self.out, self.err = b"", b""
        self._shell, self._mark, self._heard = shell, mark, heard

    async def begin(self) -> None:
        """Up to the mark; raises RuntimeFailed when it never comes."""
        try:
            self.out, self.err = await until_mark(self._shell, self._mark, _flood(GREETING))
        except NoMark as end:
            raise RuntimeFailed(
                last_words(end.err or end.out) or ("the node did not start the transfer; retry")
            ) from None

    async def read(self) -> None:
        """Up to the end."""
        self._hear()
        while await self._more():
            self._hear()
        if self._heard:
            self._heard(self.out)
            self.out = b""

    async def _more(self) -> bool:
        chunk = await self._shell.read()
        if chunk and chunk[0] == 1:
            self.out += chunk[1]
        elif chunk:
            self.err += chunk[1]
        if len(self.out) + len(self.err) > ANSWER:
            raise TooMuch(_flood(ANSWER))
        return chunk is not None

    def _hear(self) -> None:
        """Pass on what has come, without what may be the beginning of the mark."""
        if not self._heard:
            return
        wanted = f"{self._mark};".encode()
        before, mark, after = self.out.partition(wanted)
        if mark:
            self._heard(before)
            self.out, self._heard = after, None
        elif (end := len(self.out) - len(wanted) + 1) > 0:
            self._heard(self.out[:end])
            self.out = self.out[end:]


def _flood(most: int) -> str:
    return f"the node sent more than {most >> 20} MiB of messages; gave up"
