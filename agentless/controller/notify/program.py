"""Runs a program on the controller's machine, for a message: a command, or sendmail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from agentless.errors import NotSent
from agentless.model.text import Excerpt, last_words

WITHIN = 60.0
"""Seconds for a program. Then it is ended, with the programs that it has started."""
GRACE = 2.0
"""Seconds between the request to end and the end."""
_READS = 16
"""Reads of what is left in the pipe when the program has ended; another one that it started may go on writing."""


async def run_program(
    argv: Sequence[str], content: bytes, variables: Mapping[str, str], within: float = WITHIN
) -> None:
    """Run it with this standard input. Raises NotSent unless it ends with exit code 0 in time.

    It has no terminal, and a session of its own. Only the end of its output is kept. What it leaves in the background
    is not waited for.
    """
    with tempfile.TemporaryFile() as given, _output() as (output, pipe):
        given.write(content)
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=given,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotSent(f"cannot run {argv[0]}: {getattr(error, 'strerror', None) or error}") from None
        try:
            async with asyncio.timeout(within):
                code = await process.wait()
        except TimeoutError:
            raise NotSent(f"{argv[0]} did not end within {within:g} s and was stopped") from None
        finally:
            if process.returncode is None:
                await _end(process)
    if code:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = last_words(bytes(output), 200)
        raise NotSent(f"{argv[0]} {how}" + (f": {said}" if said else ""))


@contextlib.contextmanager
def _output() -> Iterator[tuple[Excerpt, int]]:
    """A pipe to write to, and the end of what is written, which is complete afterwards."""
    output, loop = Excerpt(0, 1000), asyncio.get_running_loop()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def read() -> bool:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(reading, 65536)
            if not data:
                loop.remove_reader(reading)
        output.add(data)
        return bool(data)

    loop.add_reader(reading, read)
    try:
        yield output, writing
    finally:
        os.close(writing)
        for _ in range(_READS):
            if not read():
                break
        loop.remove_reader(reading)
        os.close(reading)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it, and everything of its session that is still there."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await process.wait()
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
