"""The HTTP API: requests in, published values out. `docs/generate.py` makes a page of its OpenAPI description.

Errors are `{"error": kind, "message": sentence, "exit_code": n}`. A log is a stream of frames: one byte (1 stdout,
2 stderr, 3 a note in words about what is left out, 5 how far it is, 0 the end: empty, or an error object as JSON), four
bytes of length, big-endian, and that many bytes. So is what goes through a terminal, and a copy, see `terminal_stream`.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote, unquote

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentless import __version__
from agentless.controller.http.bounded import BoundedRoute, TooLarge
from agentless.controller.http.routes import (
    clusters,
    controller,
    envs,
    events,
    figures,
    files,
    logs,
    nodes,
    queue,
    slurm,
    tasks,
    terminal,
    uploads,
    volumes,
    vps,
    watch,
    workflows,
)
from agentless.controller.served_inventory import ServedInventory
from agentless.controller.state.tasks import Tasks
from agentless.controller.status import Status
from agentless.errors import AgentlessError, ControllerError, UsageError


class Services(
    controller.ControllerServices,
    tasks.TaskServices,
    logs.LogServices,
    terminal.TerminalServices,
    files.FileServices,
    uploads.UploadServices,
    volumes.VolumeServices,
    envs.EnvServices,
    vps.VpsServices,
    queue.QueueServices,
    clusters.ClusterServices,
    nodes.NodeServices,
    watch.WatchServices,
    figures.FigureServices,
    events.EventServices,
    workflows.WorkflowServices,
    slurm.SlurmServices,
    Protocol,
):
    """The parts of the controller that requests use: those of all routes, and of what every request goes through."""

    inventory: ServedInventory
    status: Status
    tasks: Tasks


_STATUS = {1: 500, 2: 400, 3: 409, 4: 503}


class Problem(BaseModel):
    """An error: its kind, its message, and the exit code for a command."""

    error: str
    message: str
    exit_code: int


_HEADERS = {
    "x-agentless-inventory": "Path of the inventory, percent-encoded. The controller refuses any path but its own.",
    "x-agentless-version": "Version of the client. The controller refuses any version but its own.",
    "x-agentless-owner": "User who sends the request. Default: the owner of the controller.",
}


class _Api(FastAPI):
    """The application. In its description each request has the headers, and each may answer with a Problem.

    Told of each route, FastAPI would make validators for all of them, which took a fifth of a controller's start.
    """

    def openapi(self) -> dict[str, Any]:
        """Made when it is first asked for."""
        if self.openapi_schema is None:
            described = super().openapi()
            described["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            for operation in (each for path in described["paths"].values() for each in path.values()):
                operation.setdefault("parameters", []).extend(
                    {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
                    for name, text in _HEADERS.items()
                )
        return super().openapi()


def make(services: Services) -> FastAPI:
    """The application."""

    async def current(request: Request) -> None:
        version = request.headers.get("x-agentless-version", __version__)
        of_controller = request.url.path.startswith("/v1/controller")
        if version != __version__ and not of_controller:
            raise ControllerError(
                f"the running controller is version {__version__}, this command is {version}; run: agentless "
                "controller stop (tasks keep running), then retry"
            )
        wanted = unquote(request.headers.get("x-agentless-inventory", "")) or None
        await services.inventory.use(wanted, reading=of_controller or request.method == "GET")
        request.state.warning = services.status.warning  # as it is once the request is done

    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    app = _Api(
        title="agentless",
        version=__version__,
        dependencies=[Depends(current)],
        responses={"default": {"content": problem, "description": "Error, with status 400, 409, 500 or 503"}},
        docs_url=None,
        redoc_url=None,
    )
    app.router.route_class = BoundedRoute
    app.state.owner = services.tasks.owner
    app.add_middleware(_Warnings)

    _answer_errors(app)
    for routes in (
        controller,
        tasks,
        logs,
        terminal,
        files,
        uploads,
        volumes,
        envs,
        vps,
        queue,
        slurm,
        clusters,
        nodes,
        watch,
        figures,
        events,
        workflows,
    ):
        routes.add_to(app, services)
    return app


def _answer_errors(app: FastAPI) -> None:
    """Errors are answered as a Problem."""

    @app.exception_handler(AgentlessError)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return _problem(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: Exception) -> JSONResponse:
        first = error.errors()[0]  # type: ignore[attr-defined]
        place, *names = map(str, first["loc"])
        where = f"--{names[0]}" if place == "query" else ".".join((place, *names))  # as it would be typed
        return JSONResponse({"error": "UsageError", "message": f"{where}: {first['msg']}", "exit_code": 2}, 400)

    @app.exception_handler(TooLarge)
    async def too_large(_: Request, error: Exception) -> JSONResponse:
        return _problem(UsageError(error.detail))  # type: ignore[attr-defined]

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: Exception) -> JSONResponse:
        status = error.status_code  # type: ignore[attr-defined]
        words = f"{request.method} {request.url.path}: no such request; for a list, GET /openapi.json"
        return JSONResponse({"error": "UsageError", "message": words, "exit_code": 2}, status)


class _Warnings:
    """The header `x-agentless-warning` on every answer, also on an error and on a stream."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def send_with_warning(message: Message) -> None:
            warned = scope.get("state", {}).get("warning")
            if message["type"] == "http.response.start" and warned and (warning := warned()):
                message["headers"] = [*message["headers"], (b"x-agentless-warning", quote(warning).encode())]
            await send(message)

        await self._app(scope, receive, send_with_warning)


def _problem(error: Exception) -> JSONResponse:
    code = error.exit_code if isinstance(error, AgentlessError) else 1
    body = {"error": type(error).__name__, "message": str(error), "exit_code": code}
    return JSONResponse(body, _STATUS[code])
