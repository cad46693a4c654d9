"""One shell on a node, and the marks that separate the output of its commands."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Callable

from agentless.errors import NoAnswer, TooMuch, Unreachable
from agentless.model.command import Command, Result
from agentless.ports import Shell
from agentless.remote import guards
from agentless.remote.concurrency import feed

CHUNK = 256 * 1024
GREETING = 1 << 20
"""Bytes that a login shell may print before its first command: a message of the day has a few thousand."""


class NeverStarted(NoAnswer):
    """The shell had ended before it took the command; the connection may still hold."""


class FloodedError(Exception):
    """Too much output came before the mark."""


class EndedError(Exception):
    """The shell ended before its mark came."""

    def __init__(self, out: bytes, err: bytes) -> None:
        super().__init__()
        self.out, self.err = out, err


class Worker:
    """A shell that prints marks: `NUMBER<0;` before the output of a command, `NUMBER>EXIT CODE;` after it.

    `group` is its process group, `noise` how many bytes it printed before it could take a command, `busy` whether
    something of a command may be in it, `idle` whether it can take one.
    """

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.group = 0
        self.noise = 0
        self.busy = False
        self.idle = False
        self._seen = {1: bytearray(), 2: bytearray()}

    async def greet(self, *, asks: bool) -> int:
        """Skip what the login shell prints, and learn the process group. Raises EndedError.

        Returns how many processes the login may have if it `asks`; 0: any number.
        """
        mark = f"{secrets.token_hex(16)}="
        await self.shell.write(guards.greeting(mark, asks=asks))
        found = await self._until(mark, GREETING)
        self.group = found[1][0]
        self.noise = len(found[1][1]) + len(found[2][1])
        await self.shell.write(guards.prelude())
        return found[2][0]

    async def run(
        self,
        command: Command,
        data: AsyncIterator[bytes] | None = None,
        heard: Callable[[bytes], None] | None = None,
    ) -> Result:
        """Run one command. If the shell itself ends, the command has ended: a script may kill its shell."""
        self.busy, self.idle = True, False
        number = secrets.token_hex(16)
        await self.shell.write(guards.run(command, number, is_last=data is not None))
        try:
            await self._until(f"{number}<", GREETING)
        except EndedError:
            self.busy = False
            raise NeverStarted("the shell on the node ended before it accepted the command") from None
        try:
            # Only now: a shell may have read ahead while it was looking for the end of the line.
            ending = self._until(f"{number}>", command.most, heard)
            found = await (ending if data is None else feed(self.shell, data, ending))
            self.busy, self.idle = False, data is None
            return Result(found[1][0], found[1][1], found[2][1])
        except EndedError as end:
            return Result(await self.shell.wait(), end.out, end.err)

    async def start_pipe(self, command: Command) -> None:
        """Run one command that reads the shell's own stdin; its output is for `read`."""
        self.busy = True
        number = secrets.token_hex(16)
        await self.shell.write(guards.pipe(command, number))
        try:
            await self._until(f"{number}<", GREETING)
        except EndedError:
            self.busy = False
            raise Unreachable("the shell on the node ended before it accepted the command") from None
        except FloodedError:
            raise TooMuch(f"the shell on the node prints more than {GREETING >> 20} MiB before it starts") from None

    async def read(self) -> tuple[int, bytes] | None:
        """The next output that is no mark."""
        for fd, seen in self._seen.items():
            if seen:
                data = bytes(seen)
                seen.clear()
                return fd, data
        chunk = await self.shell.read()
        self.busy = self.busy and chunk is not None
        return chunk

    async def _until(
        self, mark: str, most: int, heard: Callable[[bytes], None] | None = None
    ) -> dict[int, tuple[int, bytes]]:
        """Read up to the mark on both streams; returns for each (1, 2) the number in it, and the output before it.

        Raises FloodedError when more than `most` bytes come.
        """
        size = 0
        found: dict[int, tuple[int, bytes]] = {}
        searched = {1: 0, 2: 0}
        wanted = mark.encode()
        if heard is not None and self._seen[1]:
            heard(bytes(self._seen[1]))  # it came along with the mark before
        while True:
            for fd, seen in self._seen.items():
                at = -1 if fd in found else seen.find(wanted, searched[fd])
                end = -1 if at < 0 else seen.find(b";", at)
                if end >= 0:
                    number = bytes(seen[at + len(wanted) : end])
                    if not re.fullmatch(rb"[0-9]{1,10}", number):
                        raise Unreachable("unexpected answer from the shell on the node")
                    found[fd] = int(number), bytes(seen[:at])
                    del seen[: end + 1]
                else:
                    searched[fd] = max(0, len(seen) - len(wanted)) if at < 0 else at
            if len(found) == 2:
                return found
            chunk = await self.shell.read()
            if chunk is None:
                out, err = (found[fd][1] if fd in found else bytes(self._seen[fd]) for fd in (1, 2))
                raise EndedError(out, err)
            self._seen[chunk[0]] += chunk[1]
            size += len(chunk[1])
            if size > most:
                raise FloodedError
            if heard is not None and chunk[0] == 1:
                heard(bytes(self._seen[1]))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """The data, in pieces."""
    view = memoryview(data)
    for start in range(0, len(data), CHUNK):
        yield bytes(view[start : start + CHUNK])
