"""The requests about the controller itself."""

from __future__ import annotations

from fastapi import FastAPI

from agentless.controller.http.services import Services
from agentless.model.view import ControllerView


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""

    @app.get("/v1/controller")
    async def controller() -> ControllerView:
        return services.status.describe()

    @app.post("/v1/controller/stop")
    async def stop_controller() -> ControllerView:
        services.lifetime.leave()
        return services.status.describe()
