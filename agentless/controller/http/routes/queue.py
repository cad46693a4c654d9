"""The requests about the queue: who waits, why, in which order, and what is reserved."""

from __future__ import annotations

from fastapi import FastAPI

from agentless.controller.http.schemas import MoveRequest, ReservationRequest, SubmitRequest
from agentless.controller.http.services import Asking, Services, seen_by
from agentless.errors import UsageError
from agentless.model.view import (
    ExplainView,
    ReservationView,
    ShareView,
    TaskView,
)


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""
    core = services.core

    @app.get("/v1/queue")
    async def queue(me: Asking) -> list[TaskView]:
        """Those who wait, in their order."""
        await core.heard(core.links)
        return [seen_by(me, core.view(task)) for task in services.scheduler.queue]

    @app.get("/v1/shares")
    async def shares() -> list[ShareView]:
        """What each owner has used lately, holds and waits for; those first that are next."""
        await core.heard(core.links)
        return services.scheduler.shares()

    @app.post("/v1/tasks/{task}/move")
    async def move(task: str, request: MoveRequest, me: Asking) -> TaskView:
        """Give one that waits another place in the queue."""
        moved = services.scheduler.move(task, request.position, request.before, request.after, me)
        return seen_by(me, core.view(moved))

    @app.get("/v1/tasks/{task}/explain")
    async def explain(task: str) -> ExplainView:
        """Why a task does not start."""
        await core.heard(core.links)
        return services.scheduler.explain(core.find(task))

    @app.post("/v1/explain")
    async def what_if(request: SubmitRequest, me: Asking) -> ExplainView:
        """What would become of a task if it were submitted now; nothing is."""
        (spec, *more) = request.specs()
        if more:
            raise UsageError("one task at a time can be explained; name one target")
        await core.heard(core.links)
        services.submission.check(spec)
        return services.scheduler.what_if(spec, request.owner or me)

    @app.get("/v1/reservations")
    async def reservations() -> list[ReservationView]:
        """Those that are not over, the first to begin first."""
        await core.heard({each.node for each in core.reservations.values() if each.node in core.links})
        return services.reservations.views()

    @app.post("/v1/reservations")
    async def reserve(request: ReservationRequest, me: Asking) -> list[ReservationView]:
        """All of the targets, or none."""
        return await services.reservations.reserve(request, me)

    @app.delete("/v1/reservations/{reservation}")
    async def unreserve(reservation: str, me: Asking) -> ReservationView:
        return services.reservations.remove(reservation, me)
