"""The request for a terminal; `terminal_stream` has the frames of both directions."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import FastAPI, Query, Response

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.terminal_stream import TerminalStream
from agentless.controller.lifetime import Lifetime
from agentless.controller.tasks.exec import Terminals
from agentless.model.terminal import Attachment, Size


class TerminalServices(Protocol):
    """The parts that this request uses."""

    terminals: Terminals
    lifetime: Lifetime


def add_to(app: FastAPI, services: TerminalServices) -> None:
    """Add it."""

    @app.post("/v1/tasks/{task}/terminal")
    async def terminal(
        task: str, caller: CurrentCaller, command: Annotated[tuple[str, ...], Query()] = (), size: str | None = None
    ) -> Response:
        """Run a program in the container of a running task. Without `size`, it has no terminal."""
        opening = services.terminals.open(
            task, command, Attachment.sized(None if size is None else Size.parse(size)), caller
        )
        stopped = "the controller stopped and closed the terminal; the task keeps running"
        return TerminalStream(services.lifetime, opening, stopped)
