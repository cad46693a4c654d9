"""The requests about volumes."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.files.volumes import Volumes
from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import VolumeRequest
from agentless.model.view import VolumeView


class VolumeServices(Protocol):
    """The part that these requests use."""

    volumes: Volumes


def add_to(app: FastAPI, services: VolumeServices) -> None:
    """Add them."""

    @app.get("/v1/volumes")
    async def volumes(sizes: bool = True) -> list[VolumeView]:
        """List the volumes of all reachable nodes. Faster without `sizes`."""
        return await services.volumes.all(sizes=sizes)

    @app.post("/v1/volumes")
    async def create(request: VolumeRequest, caller: CurrentCaller) -> VolumeView:
        """Create a volume on a node."""
        return await services.volumes.create(request.name, request.node, caller)

    @app.delete("/v1/volumes/{name}")
    async def remove(name: str, node: str | None = None) -> list[VolumeView]:
        """Remove a volume from one node, or from all nodes."""
        return await services.volumes.remove(name, node)
