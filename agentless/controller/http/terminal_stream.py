"""A program on a node with its input and output: frames in both directions at once, until either side leaves.

The body of the request: 0 ends the input, 1 is input, 4 is a new size of its terminal (`80x24`). The answer: 1 and 2
are output, and 0 the end, with the exit code as `{"exit_code": n}`, or with an error. To disconnect is to hang
up.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send

from agentless.controller.lifetime import Lifetime
from agentless.controller.nodes.program import Program
from agentless.errors import AgentlessError, ControllerError, UsageError
from agentless.formats.frames import DATA, END, RESIZE, FrameDecoder, frame
from agentless.model.terminal import Size
from agentless.ports import Duplex
from agentless.remote.concurrency import cancel


class TerminalStream(Response):
    """The answer, which begins when the program has, and ends with it, or with the error `leaving` at a shutdown."""

    def __init__(self, lifetime: Lifetime, opening: AbstractAsyncContextManager[Duplex], leaving: str) -> None:
        super().__init__(media_type="application/octet-stream")
        self._lifetime, self._opening, self._words = lifetime, opening, leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin the program, and carry both directions."""
        del scope
        begun, end = False, None
        leaving = asyncio.create_task(self._lifetime.until_leaving())
        try:
            async with self._opening as program:
                headers = [(b"content-type", b"application/octet-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                begun = True
                end = await _stream(program, receive, send, leaving)
                if end is None and leaving.done():
                    raise ControllerError(self._words)
        except AgentlessError as error:
            if not begun:
                raise
            end = error.published()
        finally:
            leaving.cancel()
        last = b"" if end is None else frame(END, orjson.dumps(end))
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _stream(program: Duplex, receive: Receive, send: Send, leaving: asyncio.Task[None]) -> dict[str, Any] | None:
    """How the program ended; None if the client disconnected, or the controller is stopping."""
    printing = asyncio.create_task(_send_output(program, send))
    typing = asyncio.create_task(_receive_input(program, receive))
    try:
        done, _ = await asyncio.wait((printing, typing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if printing in done:
            printing.result()
            return {"exit_code": await program.wait()}
        if typing in done:
            typing.result()
        return None
    finally:
        await cancel(printing, typing)


async def _send_output(program: Duplex, send: Send) -> None:
    """Send output until the program ends."""
    while chunk := await program.read():
        await send({"type": "http.response.body", "body": frame(*chunk), "more_body": True})


async def _receive_input(program: Duplex, receive: Receive) -> None:
    """Pass on input until the client disconnects."""
    frames = FrameDecoder()
    while (message := await receive())["type"] == "http.request":
        for kind, data in frames.feed(message.get("body", b"")):
            if kind == DATA:
                await program.write(data)
            elif kind == RESIZE and isinstance(program, Program):
                await program.resize(Size.parse(data.decode("ascii", "replace")))
            elif kind == END:
                await program.write_eof()
            else:
                raise UsageError(f"unexpected frame of kind {kind} in this request")
