"""Runs a program on the controller's machine, for a message: a command, or sendmail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from agentless.errors import NotSent
from agentless.model.text import Excerpt, last_words

WITHIN = 60.0
"""Seconds for a program. Then it is ended, with all programs that it has started."""
GRACE = 2.0
"""Seconds between the request to end and the end."""


async def run_program(
    argv: Sequence[str], content: bytes, variables: Mapping[str, str], within: float = WITHIN
) -> None:
    """Run it with this standard input. Raises NotSent unless it ends with exit code 0 in time.

    Of its output, only the beginning and the end are kept. It has no terminal, and a session of its own.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise NotSent(f"cannot run {argv[0]}: {getattr(error, 'strerror', None) or error}") from None
    output = Excerpt(0, 1000)
    try:
        async with asyncio.timeout(within):
            await asyncio.gather(_write(process, content), _read(process, output))
            code = await process.wait()
    except TimeoutError:
        raise NotSent(f"{argv[0]} did not end within {within:g} s and was stopped") from None
    finally:
        await _end(process)
    if code:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        said = last_words(bytes(output), 200)
        raise NotSent(f"{argv[0]} {how}" + (f": {said}" if said else ""))


async def _write(process: asyncio.subprocess.Process, content: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(OSError):  # it need not read
        process.stdin.write(content)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read(process: asyncio.subprocess.Process, output: Excerpt) -> None:
    while process.stdout and (data := await process.stdout.read(65536)):
        output.add(data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End everything of its session that is still there."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await process.wait()
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
