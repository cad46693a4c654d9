"""The requests about VPS."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import StopRequest, SubmitRequest
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.views import TaskViews
from agentless.controller.vps.vps import Vps
from agentless.model.view import StartView, TaskView
from agentless.rules.views.publish import seen_by


class VpsServices(Protocol):
    """The parts that these requests use."""

    vps: Vps
    nodes: Nodes
    views: TaskViews


def add_to(app: FastAPI, services: VpsServices) -> None:
    """Add them."""
    vps, views = services.vps, services.views

    @app.get("/v1/vps")
    async def all_vps(caller: CurrentCaller) -> list[TaskView]:
        """List all VPS, by name, including stopped ones."""
        await services.nodes.heard()
        return [views.seen_by(caller, task) for task in vps.all()]

    @app.post("/v1/vps")
    async def create(request: SubmitRequest, caller: CurrentCaller) -> StartView:
        """Create a VPS. The body is that of `POST /v1/tasks`, with one target; the name is that of its `spec`."""
        start = await vps.create(request.submit(caller))
        return replace(start, task=seen_by(caller, start.task)) if start.task else start

    @app.get("/v1/vps/{name}")
    async def show(name: str, caller: CurrentCaller) -> TaskView:
        """Show a VPS."""
        return views.seen_by(caller, vps.find(name))

    @app.post("/v1/vps/{name}/stop")
    async def stop(name: str, request: StopRequest, caller: CurrentCaller) -> TaskView:
        """Stop a VPS; its files stay."""
        return views.seen_by(caller, await vps.stop(name, request.grace, by=caller))

    @app.post("/v1/vps/{name}/start")
    async def start(name: str, caller: CurrentCaller) -> TaskView:
        """Start a stopped VPS with the same GPUs."""
        return views.seen_by(caller, await vps.start(name, by=caller))

    @app.post("/v1/vps/{name}/restart")
    async def restart(name: str, request: StopRequest, caller: CurrentCaller) -> TaskView:
        """Stop a VPS if it runs, and start it."""
        return views.seen_by(caller, await vps.restart(name, request.grace, by=caller))

    @app.delete("/v1/vps/{name}")
    async def remove(name: str, caller: CurrentCaller, force: bool = False) -> TaskView:
        """Remove a VPS with its files; with `force`, also a live one."""
        return seen_by(caller, await vps.remove(name, force=force, by=caller))
