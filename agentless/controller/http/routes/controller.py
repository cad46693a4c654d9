"""The requests about the controller itself."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.lifetime import Lifetime
from agentless.controller.status import Status
from agentless.model.view import ControllerView


class ControllerServices(Protocol):
    """The parts that these requests use."""

    lifetime: Lifetime
    status: Status


def add_to(app: FastAPI, services: ControllerServices) -> None:
    """Add them."""

    @app.get("/v1/controller")
    async def controller() -> ControllerView:
        """The controller: version, folders, warnings."""
        return services.status.describe()

    @app.post("/v1/controller/stop")
    async def stop_controller() -> ControllerView:
        """Stop the controller; tasks go on, and the next command starts it again."""
        services.lifetime.leave()
        return services.status.describe()
