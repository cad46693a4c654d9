"""The requests about files of nodes and of tasks' containers. A path is percent-encoded: `model/files/location`."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import FastAPI, Query, Response

from agentless.controller.files.node_files import Files, Found
from agentless.controller.http.schemas import LookRequest
from agentless.controller.http.terminal_stream import TerminalStream
from agentless.controller.lifetime import Lifetime
from agentless.model.files.location import Way, decoded


class FileServices(Protocol):
    """The parts that these requests use."""

    files: Files
    lifetime: Lifetime


def add_to(app: FastAPI, services: FileServices) -> None:
    """Add them."""

    @app.post("/v1/files/{place}/look")
    async def look(place: str, request: LookRequest) -> Found:
        """Look up paths on a node or in the container of a task."""
        return await services.files.look(place, [decoded(path) for path in request.paths])

    @app.post("/v1/files/{place}/transfer")
    async def transfer(
        place: str, way: Way, path: str, folder: bool, argument: Annotated[tuple[str, ...], Query()] = ()
    ) -> Response:
        """Copy files: stream the input and output of the remote program in frames.

        With `send` the program prints a tar stream, with `receive` it reads one. With `rsync` it is rsync with these
        arguments.
        """
        arguments = [decoded(word) for word in argument]
        opening = services.files.open(place, way, decoded(path), is_folder=folder, arguments=arguments)
        stopped = "the controller stopped and interrupted the copy; run the command again"
        return TerminalStream(services.lifetime, opening, stopped)
