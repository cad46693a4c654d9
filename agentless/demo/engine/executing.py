"""`docker exec` of a simulated node. As in Docker, the program goes on if its client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
import tty
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from agentless.demo.calls import Call
from agentless.demo.engine.engine import Complaint, SimulatedEngine
from agentless.demo.engine.words import Words
from agentless.demo.processes.pipes import Reader, read, write
from agentless.demo.processes.terminal import PseudoTerminal
from agentless.remote.concurrency import cancel

SIZES_EVERY = 0.05
"""Seconds between two looks at the size of a client's terminal: its signal reaches the client only."""


async def execute(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Run a program in a container, with the client's input and on its terminal if it wants; gives its exit code."""
    if len(words.rest) < 2:
        raise Complaint("\"docker exec\" requires at least 2 arguments.\nSee 'docker exec --help'.")
    if "--tty" in words.options:
        with _keys(call) as keys, _raw(keys):
            return await _on_terminal(engine, words, call, keys)
    return await _through_pipes(engine, words, call)


async def _on_terminal(engine: SimulatedEngine, words: Words, call: Call, keys: int) -> int:
    rows, columns = termios.tcgetwinsize(keys)
    terminal = PseudoTerminal(columns, rows)
    try:
        _, code = engine.execute(*words.rest, terminal=terminal)
    finally:
        os.close(terminal.theirs)
    try:
        async with _beside(_copy(keys, terminal.input.fileno()), _follow_size(keys, terminal)):
            while data := await read(terminal.output.fileno()):
                await call.write(1, data)
            return await code
    finally:
        terminal.input.close()
        Reader(terminal.output, lambda _: None)  # it may go on printing


async def _through_pipes(engine: SimulatedEngine, words: Words, call: Call) -> int:
    child, code = engine.execute(*words.rest)
    outputs = {1: child.stdout, 2: child.stderr}
    for pipe in (child.stdin, *outputs.values()):
        os.set_blocking(pipe.fileno(), False)

    async def print_all(stream: int) -> None:
        while data := await read(outputs[stream].fileno()):
            await call.write(stream, data)

    async def feed() -> None:
        if "--interactive" in words.options:
            with _keys(call) as keys:
                await _copy(keys, child.stdin.fileno())
        child.stdin.close()

    try:
        async with _beside(feed()):
            await asyncio.gather(print_all(1), print_all(2))
            return await code
    finally:
        child.stdin.close()
        for output in outputs.values():
            Reader(output, lambda _: None)


@contextlib.contextmanager
def _keys(call: Call) -> Iterator[int]:
    """The input of the client."""
    fd = call.open_input()
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _raw(keys: int) -> Iterator[None]:
    """Each key as it is, until the end."""
    try:
        before = termios.tcgetattr(keys)
    except termios.error:
        raise Complaint("the input device is not a TTY") from None
    tty.setraw(keys)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keys, termios.TCSANOW, before)


@contextlib.asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something during a block."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        await cancel(*tasks)


async def _copy(source: int, target: int) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        while data := await read(source):
            await write(target, data)


async def _follow_size(keys: int, terminal: PseudoTerminal) -> None:
    with contextlib.suppress(termios.error):
        while True:
            rows, columns = termios.tcgetwinsize(keys)
            terminal.resize(columns, rows)
            await asyncio.sleep(SIZES_EVERY)
