"""The requests about workflows."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.workflow_schemas import (
    WorkflowGoOnRequest,
    WorkflowRequest,
    WorkflowRetryRequest,
    WorkflowStopRequest,
)
from agentless.controller.nodes.registry import Nodes
from agentless.controller.workflows.changes import WorkflowChanges
from agentless.controller.workflows.recovery import WorkflowRecovery
from agentless.controller.workflows.workflows import Workflows
from agentless.model.caller import Caller
from agentless.model.view import WorkflowLeftView, WorkflowStartView, WorkflowView
from agentless.rules.views.publish import seen_by


class WorkflowServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    workflows: Workflows
    workflow_changes: WorkflowChanges
    workflow_recovery: WorkflowRecovery


def add_to(app: FastAPI, services: WorkflowServices) -> None:
    """Add them."""
    _add_recovery(app, services)
    workflows, changes = services.workflows, services.workflow_changes

    @app.post("/v1/workflows")
    async def run(request: WorkflowRequest, caller: CurrentCaller) -> WorkflowStartView:
        """Submit all jobs of a workflow, or none if one of them is refused."""
        return _seen_by(caller, await workflows.run(request.submit(caller), request.name, request.text))

    @app.get("/v1/workflows")
    async def all_workflows(caller: CurrentCaller, mine: bool = False) -> list[WorkflowView]:
        """List all workflows, the newest first."""
        await services.nodes.heard()
        return workflows.all(caller, mine=mine)

    @app.get("/v1/workflows/{workflow}")
    async def show(workflow: str, caller: CurrentCaller) -> WorkflowView:
        """Show a workflow with its jobs."""
        await services.nodes.heard()
        return workflows.show(workflow, caller)

    @app.post("/v1/workflows/{workflow}/stop")
    async def stop(workflow: str, request: WorkflowStopRequest, caller: CurrentCaller) -> WorkflowView:
        """Stop all jobs of a workflow that have not ended."""
        return await changes.stop(workflow, request.grace, by=caller)

    @app.post("/v1/workflows/{workflow}/retry")
    async def retry(workflow: str, request: WorkflowRetryRequest, caller: CurrentCaller) -> WorkflowView:
        """Run jobs again."""
        return changes.retry(workflow, request.job, by=caller)

    @app.delete("/v1/workflows/{workflow}")
    async def remove(workflow: str, caller: CurrentCaller, force: bool = False) -> WorkflowView:
        """Remove a workflow with all its tasks."""
        return await changes.remove(workflow, force=force, by=caller)


def _add_recovery(app: FastAPI, services: WorkflowServices) -> None:
    recovery = services.workflow_recovery

    @app.get("/v1/recovery/workflows")
    async def left(caller: CurrentCaller) -> list[WorkflowLeftView]:
        """List your workflows on the nodes with jobs that had not begun, and are unknown here."""
        return await recovery.offer(caller)

    @app.post("/v1/recovery/workflows/{workflow}")
    async def go_on(workflow: str, request: WorkflowGoOnRequest, caller: CurrentCaller) -> WorkflowStartView:
        """Go on with jobs that `GET /v1/recovery/workflows` has listed. Recover the tasks that run first."""
        found = await recovery.go_on(workflow, request.digest, request.jobs, by_hand=request.by_hand, by=caller)
        return _seen_by(caller, found)


def _seen_by(caller: Caller, found: WorkflowStartView) -> WorkflowStartView:
    starts = (replace(each, task=seen_by(caller, each.task)) if each.task else each for each in found.starts)
    return replace(found, starts=tuple(starts))
