"""Files in a container whose image has no sftp-server: a shell there is asked, one request after the other."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from agentless.controller.nodes.program import Program
from agentless.errors import RuntimeFailed, Timeout, TooMuch
from agentless.model.command import escaped

BLOCK = 64 * 1024
PIECE = 16 * BLOCK
"""Bytes of a file that are read at once."""
_LISTING = 64 << 20
"""Bytes of the answer to `list`: a folder of some hundred thousand files."""
_OTHERS = PIECE + (64 << 10)
"""Bytes of any other answer."""
BEGIN_WITHIN = 20.0
"""Seconds in which the shell must have begun to answer."""


@dataclass(frozen=True)
class Answer:
    """The output of a request, or the reason why it failed."""

    ok: bool
    output: bytes


class Files:
    """Asks the shell. `seen` is what it has printed already."""

    def __init__(self, program: Program, seen: bytes) -> None:
        self._program = program
        self._seen = seen
        self._mark = secrets.token_hex(16).encode()
        self._turn = asyncio.Lock()
        self._asking: set[asyncio.Task[Answer]] = set()
        self._broken = ""

    async def begin(self) -> bytes:
        """The folder that relative paths begin in; raises Timeout."""
        await self._program.write(self._mark + b"\n")
        try:
            async with asyncio.timeout(BEGIN_WITHIN):
                return (await self.ask("pwd")).output.rstrip(b"\n") or b"/"
        except TimeoutError:
            raise Timeout(f"the shell in the container did not answer within {BEGIN_WITHIN:g} s; retry") from None

    async def ask(self, what: str, *arguments: bytes) -> Answer:
        """The answer to one request; raises RuntimeFailed if the shell has ended.

        Who is cancelled leaves no half of an answer to the next one.
        """
        asking = asyncio.create_task(self._exchange(what, *arguments))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def _exchange(self, what: str, *arguments: bytes) -> Answer:
        async with self._turn:
            if self._broken:
                raise RuntimeFailed(self._broken)
            self._broken = "an earlier request has failed in the middle of its answer"
            most = _LISTING if what == "list" else _OTHERS
            await self._program.write(b" ".join([what.encode(), *map(escaped, arguments)]) + b"\n")
            output = await self._until(self._mark, most)
            code = await self._until(b";", most)
            self._broken = ""
            return Answer(code == b"0", output)

    async def _until(self, end: bytes, most: int) -> bytes:
        parts, searched = bytearray(self._seen), 0
        while (at := parts.find(end, searched)) < 0:
            searched = max(0, len(parts) - len(end))
            if len(parts) > most:
                raise TooMuch(f"the container sent more than {most >> 20} MiB for one request")
            chunk = await self._program.read()
            if chunk is None:
                raise RuntimeFailed("the shell in the container ended")
            parts += chunk[1] if chunk[0] == 1 else b""
        self._seen = bytes(parts[at + len(end) :])
        return bytes(parts[:at])
