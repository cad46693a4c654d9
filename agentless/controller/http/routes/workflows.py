"""The requests about workflows."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from fastapi import FastAPI

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.workflow_schemas import WorkflowRequest, WorkflowRetryRequest, WorkflowStopRequest
from agentless.controller.nodes.registry import Nodes
from agentless.controller.workflows.changes import WorkflowChanges
from agentless.controller.workflows.workflows import Workflows
from agentless.model.view import WorkflowStartView, WorkflowView
from agentless.rules.views.publish import seen_by


class WorkflowServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    workflows: Workflows
    workflow_changes: WorkflowChanges


def add_to(app: FastAPI, services: WorkflowServices) -> None:
    """Add them."""
    workflows, changes = services.workflows, services.workflow_changes

    @app.post("/v1/workflows")
    async def run(request: WorkflowRequest, caller: CurrentCaller) -> WorkflowStartView:
        """Submit all jobs of a workflow, or none if one of them is refused."""
        found = await workflows.run(request.submit(caller), request.name, request.text)
        starts = (replace(each, task=seen_by(caller, each.task)) if each.task else each for each in found.starts)
        return replace(found, starts=tuple(starts))

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
