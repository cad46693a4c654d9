"""A program on a node that somebody talks with: frames both ways at the same time, as long as both are there.

The body of the request: 0 ends the input, 1 is input, 4 is a new size of its terminal (`80x24`). The answer: 1 and 2
are output, and 0 the end, with the exit code as `{"exit_code": n}`, or with an error. Whoever is gone has hung up.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send

from agentless.controller.http.services import Services
from agentless.controller.nodes.program import Program
from agentless.errors import AgentlessError, ControllerError, UsageError
from agentless.model.terminal import DATA, END, RESIZE, Frames, Size, frame


class Speaker(Protocol):
    """A program that runs."""

    async def read(self) -> tuple[int, bytes] | None:
        """As `Shell.read`."""

    async def write(self, data: bytes) -> None:
        """As `Shell.write`."""

    async def write_eof(self) -> None:
        """As `Shell.write_eof`."""

    async def wait(self) -> int:
        """As `Shell.wait`."""


class Talk(Response):
    """The answer, which begins when the program has, and ends with it, or once the controller is leaving.

    That is told by an error with the words in `leaving`.
    """

    def __init__(self, services: Services, opening: AbstractAsyncContextManager[Speaker], leaving: str) -> None:
        super().__init__(media_type="application/octet-stream")
        self._services, self._opening, self._words = services, opening, leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Both directions."""
        del scope
        begun, end = False, None
        leaving = asyncio.create_task(self._services.bus.until(lambda: self._services.lifetime.leaving))
        try:
            async with self._opening as program:
                headers = [(b"content-type", b"application/octet-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                begun = True
                end = await _talk(program, receive, send, leaving)
                if end is None and leaving.done():
                    raise ControllerError(self._words)
        except AgentlessError as error:
            if not begun:
                raise
            end = {"error": error.kind, "message": str(error), "exit_code": error.exit_code}
        finally:
            leaving.cancel()
        last = b"" if end is None else frame(END, orjson.dumps(end))
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _talk(program: Speaker, receive: Receive, send: Send, leaving: asyncio.Task[None]) -> dict[str, Any] | None:
    """How the program ended; None when it was hung up on, or the controller is leaving."""
    printing = asyncio.create_task(_print(program, send))
    typing = asyncio.create_task(_type(program, receive))
    try:
        done, _ = await asyncio.wait((printing, typing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if printing in done:
            printing.result()
            return {"exit_code": await program.wait()}
        if typing in done:
            typing.result()
        return None
    finally:
        printing.cancel()
        typing.cancel()
        await asyncio.gather(printing, typing, return_exceptions=True)


async def _print(program: Speaker, send: Send) -> None:
    """Until it has ended."""
    while chunk := await program.read():
        await send({"type": "http.response.body", "body": frame(*chunk), "more_body": True})


async def _type(program: Speaker, receive: Receive) -> None:
    """Until the one who types has gone."""
    frames = Frames()
    while (message := await receive())["type"] == "http.request":
        for kind, data in frames.feed(message.get("body", b"")):
            if kind == DATA:
                await program.write(data)
            elif kind == RESIZE and isinstance(program, Program):
                await program.resize(Size.parse(data.decode("ascii", "replace")))
            elif kind == END:
                await program.write_eof()
            else:
                raise UsageError(f"there are no frames of kind {kind} in such a request")
