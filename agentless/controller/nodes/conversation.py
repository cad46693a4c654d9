"""A script on a node that takes bytes on its stdin, and what it says: marks in it say where one thing ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable

from agentless.errors import RuntimeFailed, TooMuch
from agentless.model.command import ANSWER, Result
from agentless.ports import Shell
from agentless.remote.worker import GREETING


async def conversed(
    shell: Shell, mark: str, data: AsyncIterable[bytes], heard: Callable[[bytes], None] | None = None
) -> Result:
    """Write to a script what it waits for once its mark has come, and give what it says after that.

    With `heard` this is told as it comes, up to a second mark, and only what follows that one is given.
    """
    reader = _Reader(shell, f"{mark};".encode(), heard)
    await reader.begin()
    feeding = asyncio.create_task(_feed(shell, data))
    reading = asyncio.create_task(reader.read())
    try:
        await asyncio.wait({feeding, reading}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
        await reading
    finally:
        feeding.cancel()
        reading.cancel()
        await asyncio.gather(feeding, reading, return_exceptions=True)
    return Result(await shell.wait(), reader.out, reader.err)


class _Reader:
    """Reads a script to its end; `out` and `err` are what is left to give, of which there is no more than an answer."""

    def __init__(self, shell: Shell, mark: bytes, heard: Callable[[bytes], None] | None) -> None:
        self.out, self.err = b"", b""
        self._shell, self._mark, self._heard = shell, mark, heard
        self._most = GREETING

    async def begin(self) -> None:
        """Up to the mark; raises RuntimeFailed when it never comes."""
        while self._mark not in self.out:
            if not await self._more():
                words = (self.err or self.out).decode("utf-8", "replace")
                raise RuntimeFailed(" ".join(words.split())[-300:] or "the node began nothing; try again")
        self.out = self.out.partition(self._mark)[2]
        self._most = ANSWER

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
        if len(self.out) + len(self.err) > self._most:
            raise TooMuch(f"the node said more than {self._most >> 20} MiB about it, and it was given up")
        return chunk is not None

    def _hear(self) -> None:
        """Tell what has come but for what may be the beginning of the mark."""
        if not self._heard:
            return
        before, mark, after = self.out.partition(self._mark)
        if mark:
            self._heard(before)
            self.out, self._heard = after, None
        elif (end := len(self.out) - len(self._mark) + 1) > 0:
            self._heard(self.out[:end])
            self.out = self.out[end:]


async def _feed(shell: Shell, data: AsyncIterable[bytes]) -> None:
    async for chunk in data:
        await shell.write(chunk)
    await shell.write_eof()
