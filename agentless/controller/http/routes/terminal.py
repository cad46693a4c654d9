"""The request for a terminal: see `talk` for what goes both ways."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Response

from agentless.controller.http.routes.talk import Talk
from agentless.controller.http.services import Asking, Services
from agentless.model.terminal import Size


def add_to(app: FastAPI, services: Services) -> None:
    """Add it."""

    @app.post("/v1/tasks/{task}/terminal")
    async def terminal(
        task: str, me: Asking, command: Annotated[tuple[str, ...], Query()] = (), size: str | None = None
    ) -> Response:
        """A program in the container of a running task; without a `size` it has no terminal."""
        opening = services.terminals.open(task, command, None if size is None else Size.parse(size), me)
        return Talk(services, opening, "the controller was stopped, and the terminal with it; the task runs on")
