"""The requests about clusters with queues of their own."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.tasks import Tasks
from agentless.model.view import ClusterView
from agentless.rules.views.publish import address_of


class ClusterServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    tasks: Tasks


def add_to(app: FastAPI, services: ClusterServices) -> None:
    """Add them."""

    @app.get("/v1/clusters")
    async def clusters() -> list[ClusterView]:
        """List all clusters."""
        return [
            ClusterView(
                name=name,
                engine="slurm",
                state="online" if link.silence is None else "offline" if not link.online else "degraded",
                reason=link.silence or "",
                address=address_of(link.node),
                tasks=sum(1 for _ in services.tasks.on_node(name)),
            )
            for name, link in services.nodes.clusters.items()
        ]
