"""Calls from the programs of a simulated node (`bin/docker`, `bin/flock`) to the simulation.

A program writes its PID into the node's FIFO `engine`. Its arguments and environment are read from /proc/PID, its
output is written to what it has open as 7 (its standard output) and 2, its input is 6, and its exit code is written to
9, a pipe of its own, where it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentless.demo.processes.pipes import write

FIFO = "engine"
_OPEN_AS = {1: 7, 2: 2}
_INPUT = 6
_CODE = 9
_ENDED_BY_PIPE = 128 + 13


class Call:
    """A program that waits for its exit code: its name and arguments, its environment, its PID and its parent's."""

    def __init__(self, pid: int) -> None:
        self._proc = Path("/proc", str(pid))
        self.pid = pid
        # The kernel puts the interpreter in front of a script.
        _, program, *words = self._texts("cmdline")
        self.program, self.words = os.path.basename(program), words
        self.env = dict(entry.split("=", 1) for entry in self._texts("environ") if "=" in entry)
        self._opened: dict[int, int] = {}

    @property
    def parent(self) -> int:
        """The PID of the process that started the program."""
        return int(self._proc.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])

    async def write(self, stream: int, data: bytes) -> None:
        """Print on its stream 1 or 2; waits for a slow reader. Raises OSError when nobody reads any more."""
        await write(self._open(_OPEN_AS[stream], os.O_APPEND), data)

    async def print(self, text: str) -> None:
        """Print a line on its standard output."""
        await self.write(1, f"{text}\n".encode("utf-8", "surrogateescape"))

    async def complain(self, text: str) -> None:
        """Print a line on its standard error."""
        await self.write(2, f"{text}\n".encode("utf-8", "surrogateescape"))

    def open_input(self) -> int:
        """Its input, which does not block, to be closed by the caller. It does not become our own terminal."""
        return os.open(self._proc / f"fd/{_INPUT}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)

    def finish(self, code: int) -> None:
        """Give it its exit code, unless it has gone."""
        with contextlib.suppress(OSError):
            os.write(self._open(_CODE), f"{code}\n".encode())
        for fd in self._opened.values():
            os.close(fd)
        self._opened.clear()

    def _open(self, number: int, flags: int = 0) -> int:
        if number not in self._opened:
            self._opened[number] = os.open(self._proc / f"fd/{number}", os.O_WRONLY | os.O_NONBLOCK | flags)
        return self._opened[number]

    def _texts(self, name: str) -> list[str]:
        return os.fsdecode(self._proc.joinpath(name).read_bytes()).split("\0")[:-1]


class Calls:
    """Serves the FIFO in `folder`: `answer` gives each call's exit code, and is cancelled when its program dies."""

    def __init__(self, folder: Path, answer: Callable[[Call], Awaitable[int]]) -> None:
        path = folder / FIFO
        os.mkfifo(path, 0o600)
        # Open for writing as well, it never ends.
        self._fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._answer = answer
        self._rest = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Future[int]] = set()
        asyncio.get_running_loop().add_reader(self._fifo, self._read)

    def close(self) -> None:
        """Stop serving; cancels the current calls."""
        self.cancel()
        asyncio.get_running_loop().remove_reader(self._fifo)
        os.close(self._fifo)

    def cancel(self) -> None:
        """Cancel the current calls, as if the engine had gone down: their programs exit with 1."""
        for answer in self._answers:
            answer.cancel()

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._fifo, 65536)).split(b"\n")
        for line in lines:
            task = asyncio.get_running_loop().create_task(self._serve(int(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, pid: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        code = 1
        call = None
        try:
            call = Call(pid)
            answer = asyncio.ensure_future(self._answer(call))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
            loop.add_reader(pidfd, answer.cancel)
            code = await answer
        except asyncio.CancelledError:
            pass  # its program has died, or the engine goes down
        except BrokenPipeError:
            code = _ENDED_BY_PIPE
        except (OSError, ValueError):
            pass  # its program died between two looks at it
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            if call:
                call.finish(code)
