"""The request for a terminal: frames both ways at the same time, as long as the program runs and somebody listens.

The body of the request: 0 ends the input, 1 is input, 4 is a new size (`80x24`). The answer: 1 and 2 are output, and
0 the end, with the exit code as `{"exit_code": n}`, or with an error. Whoever is gone has hung up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query, Response
from starlette.types import Receive, Scope, Send

from agentless.controller.house import Asking, House
from agentless.controller.terminals import Program
from agentless.errors import AgentlessError, ControllerError, UsageError
from agentless.model.terminal import DATA, END, RESIZE, Frames, Size, frame


def add_to(app: FastAPI, house: House) -> None:
    """Add it."""

    @app.post("/v1/tasks/{task}/terminal")
    async def terminal(
        task: str, me: Asking, command: Annotated[tuple[str, ...], Query()] = (), size: str | None = None
    ) -> Response:
        """A program in the container of a running task; without a `size` it has no terminal."""
        opening = house.terminals.open(task, command, None if size is None else Size.parse(size), me)
        return Talk(opening, lambda: house.core.hub.until(lambda: house.leaving))


_Leaving = Callable[[], Coroutine[Any, Any, None]]


class Talk(Response):
    """The answer, which begins when the program has, and ends with it, or once the controller is `leaving`."""

    def __init__(self, opening: AbstractAsyncContextManager[Program], leaving: _Leaving) -> None:
        super().__init__(media_type="application/octet-stream")
        self._opening, self._leaving = opening, leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Both directions."""
        del scope
        begun, end = False, None
        leaving = asyncio.create_task(self._leaving())
        try:
            async with self._opening as program:
                headers = [(b"content-type", b"application/octet-stream")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                begun = True
                end = await _talk(program, receive, send, leaving)
        except AgentlessError as error:
            if not begun:
                raise
            end = {"error": error.kind, "message": str(error), "exit_code": error.exit_code}
        finally:
            leaving.cancel()
        last = b"" if end is None else frame(END, orjson.dumps(end))
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _talk(program: Program, receive: Receive, send: Send, leaving: asyncio.Task[None]) -> dict[str, Any] | None:
    """How the program ended; None when it was hung up on. Raises ControllerError when the controller is leaving."""
    printing = asyncio.create_task(_print(program, send))
    typing = asyncio.create_task(_type(program, receive))
    try:
        done, _ = await asyncio.wait((printing, typing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if printing in done:
            printing.result()
            return {"exit_code": await program.wait()}
        if typing in done:
            return typing.result()
        raise ControllerError("the controller was stopped, and the terminal with it; the task runs on")
    finally:
        printing.cancel()
        typing.cancel()
        await asyncio.gather(printing, typing, return_exceptions=True)


async def _print(program: Program, send: Send) -> None:
    """Until it has ended."""
    while chunk := await program.read():
        await send({"type": "http.response.body", "body": frame(*chunk), "more_body": True})


async def _type(program: Program, receive: Receive) -> None:
    """Until the one who types has gone."""
    frames = Frames()
    while (message := await receive())["type"] == "http.request":
        for kind, data in frames.feed(message.get("body", b"")):
            if kind == DATA:
                await program.write(data)
            elif kind == RESIZE:
                await program.resize(Size.parse(data.decode("ascii", "replace")))
            elif kind == END:
                await program.write_eof()
            else:
                raise UsageError(f"there are no frames of kind {kind} in a request for a terminal")
