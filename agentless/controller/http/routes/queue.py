"""The requests about the queue: who waits, why, in which order, and what is reserved."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import MoveRequest, ReservationRequest, SubmitRequest
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.explanations import Explanations
from agentless.controller.scheduling.queue import Queue
from agentless.controller.scheduling.reservations import Reservations
from agentless.controller.scheduling.run_history import RunHistory
from agentless.controller.scheduling.scheduler import Scheduler
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.views import TaskViews
from agentless.controller.submit.builder import TaskBuilder
from agentless.errors import UsageError
from agentless.model.view import ExplainView, ReservationView, ShareView, TaskView


class QueueServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    lookup: Lookup
    views: TaskViews
    queue: Queue
    explanations: Explanations
    scheduler: Scheduler
    run_history: RunHistory
    builder: TaskBuilder
    reservations: Reservations


def add_to(app: FastAPI, services: QueueServices) -> None:
    """Add them."""
    _add_queue(app, services)
    _add_reservations(app, services.reservations)


def _add_queue(app: FastAPI, services: QueueServices) -> None:
    nodes, views = services.nodes, services.views

    @app.get("/v1/queue")
    async def queue(caller: CurrentCaller) -> list[TaskView]:
        """List the pending tasks in queue order."""
        await nodes.heard()
        return [views.seen_by(caller, task) for task in services.queue.tasks]

    @app.get("/v1/shares")
    async def shares() -> list[ShareView]:
        """List the owners with their recent usage, running tasks and pending tasks; next in line first."""
        await nodes.heard()
        return services.run_history.shares()

    @app.post("/v1/tasks/{task}/move")
    async def move(task: str, request: MoveRequest, caller: CurrentCaller) -> TaskView:
        """Move a pending task in the queue."""
        moved = services.scheduler.move(task, request.position, request.before, request.after, by=caller)
        return views.seen_by(caller, moved)

    @app.get("/v1/tasks/{task}/explain")
    async def explain(task: str) -> ExplainView:
        """Explain why a task is pending."""
        await nodes.heard()
        return services.explanations.explain(services.lookup.find(task, ""))

    @app.post("/v1/explain")
    async def what_if(request: SubmitRequest, caller: CurrentCaller) -> ExplainView:
        """Explain what would happen to a task if you submitted it now. Nothing is submitted."""
        specs = services.builder.jobs_of(request.specs())
        if len(specs) > specs[0].gang_size:
            raise UsageError("cannot explain more than one task at a time; specify one target")
        await nodes.heard()
        for spec in specs:
            services.builder.check(spec)
        owner = request.owner or caller.name
        return services.explanations.what_if(specs[0], owner, services.builder.with_ids(specs, owner))


def _add_reservations(app: FastAPI, known: Reservations) -> None:
    @app.get("/v1/reservations")
    async def reservations() -> list[ReservationView]:
        """List current and future reservations, ordered by start."""
        return await known.views()

    @app.post("/v1/reservations")
    async def reserve(request: ReservationRequest, caller: CurrentCaller) -> list[ReservationView]:
        """Reserve all targets, or none if one of them cannot be reserved."""
        return await known.reserve(request, by=caller)

    @app.delete("/v1/reservations/{reservation}")
    async def unreserve(reservation: str, caller: CurrentCaller) -> ReservationView:
        """Cancel a reservation."""
        return known.remove(reservation, by=caller)
