"""The requests about the controller itself, and about its notifications."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.lifetime import Lifetime
from agentless.controller.notify.notifier import Notifier
from agentless.controller.status import Status
from agentless.model.view import ControllerView, NotifyView


class ControllerServices(Protocol):
    """The parts that these requests use."""

    lifetime: Lifetime
    status: Status
    notifier: Notifier


def add_to(app: FastAPI, services: ControllerServices) -> None:
    """Add them."""

    @app.get("/v1/controller")
    async def controller() -> ControllerView:
        """Show the state of the controller."""
        return services.status.describe()

    @app.post("/v1/controller/stop")
    async def stop_controller() -> ControllerView:
        """Stop the controller. Tasks keep running."""
        services.lifetime.leave()
        return services.status.describe()

    @app.get("/v1/notify")
    async def notify_targets() -> list[NotifyView]:
        """List the targets of notifications."""
        return services.notifier.views()

    @app.post("/v1/notify/{target}/test")
    async def notify_test(target: str) -> NotifyView:
        """Send a test message to a target, and answer when it was sent."""
        return await services.notifier.test(target)
