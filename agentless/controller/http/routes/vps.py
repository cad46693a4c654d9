"""The requests about VPS."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.schemas import (
    ResizeRequest,
    RestoreRequest,
    StopRequest,
    SubmitRequest,
    VpsSnapshotRequest,
    VpsStartRequest,
    VpsTermsRequest,
)
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.views import TaskViews
from agentless.controller.vps.resizing import Resize
from agentless.controller.vps.vps import Started, Vps
from agentless.model.caller import Caller
from agentless.model.view import SnapshotView, StartView, TaskView
from agentless.rules.views.publish import seen_by


class VpsServices(Protocol):
    """The parts that these requests use."""

    vps: Vps
    nodes: Nodes
    views: TaskViews


def add_to(app: FastAPI, services: VpsServices) -> None:
    """Add them. Each takes a VPS by its name, or by the id of its task."""
    vps, views = services.vps, services.views
    named = vps.names.name_of

    def started(caller: Caller, done: Started) -> StartView:
        task = views.seen_by(caller, done.task)
        return StartView(task.target, task, 0, done.message)

    @app.get("/v1/vps")
    async def all_vps(caller: CurrentCaller) -> list[TaskView]:
        """List all VPS, by name, including stopped ones."""
        await services.nodes.heard()
        return [views.seen_by(caller, task) for task in vps.names.all()]

    @app.post("/v1/vps")
    async def create(request: SubmitRequest, caller: CurrentCaller) -> StartView:
        """Create a VPS. The body is that of `POST /v1/tasks`, with one target; the name is that of its `spec`."""
        start = await vps.create(request.submit(caller))
        return replace(start, task=seen_by(caller, start.task)) if start.task else start

    @app.get("/v1/vps/{name}")
    async def show(name: str, caller: CurrentCaller) -> TaskView:
        """Show a VPS. Here and below, `name` may also be its id: another VPS may get the name."""
        return views.seen_by(caller, vps.names.find(named(name)))

    @app.post("/v1/vps/{name}/stop")
    async def stop(name: str, request: StopRequest, caller: CurrentCaller) -> TaskView:
        """Stop a VPS; its files stay."""
        return views.seen_by(caller, await vps.stop(named(name), request.grace, by=caller))

    @app.post("/v1/vps/{name}/start")
    async def start(name: str, caller: CurrentCaller, request: VpsStartRequest | None = None) -> StartView:
        """Start a stopped VPS with the same GPUs."""
        elsewhere = request is not None and request.anywhere
        return started(caller, await vps.start(named(name), by=caller, elsewhere=elsewhere))

    @app.post("/v1/vps/{name}/restart")
    async def restart(name: str, request: StopRequest, caller: CurrentCaller) -> StartView:
        """Stop a VPS if it runs, and start it."""
        return started(caller, await vps.restart(named(name), request.grace, by=caller))

    @app.delete("/v1/vps/{name}")
    async def remove(name: str, caller: CurrentCaller, force: bool = False) -> TaskView:
        """Remove a VPS with its files; with `force`, also a live one. Its snapshots stay."""
        return seen_by(caller, await vps.remove(named(name), force=force, by=caller))

    @app.get("/v1/vps/{name}/snapshots")
    async def snapshots(name: str) -> list[SnapshotView]:
        """List the snapshots of a VPS, oldest first; also of one that was removed."""
        return await vps.snapshots.listed(named(name))

    @app.post("/v1/vps/{name}/snapshots")
    async def snapshot(name: str, request: VpsSnapshotRequest, caller: CurrentCaller) -> SnapshotView:
        """Save the files of a VPS as a snapshot."""
        return await vps.snapshot(named(name), request.message, by=caller)

    @app.post("/v1/vps/{name}/restore")
    async def restore(name: str, request: RestoreRequest, caller: CurrentCaller) -> StartView:
        """Run a VPS in a new container from a snapshot, on its GPUs; what was changed since is lost."""
        return started(caller, await vps.restore(named(name), request.snapshot, by=caller))

    @app.post("/v1/vps/{name}/resize")
    async def resize(name: str, request: ResizeRequest, caller: CurrentCaller) -> StartView:
        """Give a VPS other cores, memory or GPUs."""
        change = Resize(request.cores, request.memory, request.target)
        return started(caller, await vps.resize(named(name), change, by=caller))

    @app.post("/v1/vps/{name}/terms")
    async def terms(name: str, request: VpsTermsRequest, caller: CurrentCaller) -> TaskView:
        """Change when a VPS stops by itself, and how many snapshots it keeps."""
        given = {key: value for key, value in request if value is not None}
        return views.seen_by(caller, await vps.change_terms(named(name), given, by=caller))
