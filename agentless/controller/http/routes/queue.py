"""The requests about the queue: who waits, why, in which order, and what is reserved."""

from __future__ import annotations

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import MoveRequest, ReservationRequest, SubmitRequest
from agentless.controller.http.services import Services, seen_by
from agentless.errors import UsageError
from agentless.model.view import (
    ExplainView,
    ReservationView,
    ShareView,
    TaskView,
)


def add_to(app: FastAPI, services: Services) -> None:
    """Add them."""

    @app.get("/v1/queue")
    async def queue(caller: CurrentCaller) -> list[TaskView]:
        """Those who wait, in their order."""
        await services.nodes.heard()
        return [seen_by(caller, services.views.view(task)) for task in services.queue.tasks]

    @app.get("/v1/shares")
    async def shares() -> list[ShareView]:
        """What each owner has used lately, holds and waits for; those first that are next."""
        await services.nodes.heard()
        return services.run_history.shares()

    @app.post("/v1/tasks/{task}/move")
    async def move(task: str, request: MoveRequest, caller: CurrentCaller) -> TaskView:
        """Give one that waits another place in the queue."""
        moved = services.scheduler.move(task, request.position, request.before, request.after, by=caller)
        return seen_by(caller, services.views.view(moved))

    @app.get("/v1/tasks/{task}/explain")
    async def explain(task: str) -> ExplainView:
        """Why a task does not start."""
        await services.nodes.heard()
        return services.queue.explain(services.lookup.find(task))

    @app.post("/v1/explain")
    async def what_if(request: SubmitRequest, caller: CurrentCaller) -> ExplainView:
        """What would become of a task if it were submitted now; nothing is."""
        (spec, *more) = request.specs()
        if more:
            raise UsageError("one task at a time can be explained; name one target")
        await services.nodes.heard()
        services.builder.check(spec)
        return services.queue.what_if(spec, request.owner or caller.name)

    @app.get("/v1/reservations")
    async def reservations() -> list[ReservationView]:
        """Those that are not over, the first to begin first."""
        await services.nodes.heard(
            {each.node for each in services.reservation_book.known.values() if each.node in services.nodes.links}
        )
        return services.reservations.views()

    @app.post("/v1/reservations")
    async def reserve(request: ReservationRequest, caller: CurrentCaller) -> list[ReservationView]:
        """All of the targets, or none."""
        return await services.reservations.reserve(request, by=caller)

    @app.delete("/v1/reservations/{reservation}")
    async def unreserve(reservation: str, caller: CurrentCaller) -> ReservationView:
        return services.reservations.remove(reservation, by=caller)
