"""The requests about clusters with queues of their own."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.tasks import Tasks
from agentless.model.view import ClusterNodeView, ClusterView
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

    @app.get("/v1/clusters/{cluster}/nodes")
    async def cluster_nodes(cluster: str) -> list[ClusterNodeView]:
        """List the compute nodes of a cluster, as it knows them."""
        link = services.nodes.cluster_link(cluster)
        await link.ready()
        return [
            ClusterNodeView(
                name=node.name,
                state=node.state,
                reason=node.reason,
                gpus=dict(node.gpus),
                gpus_used=node.gpus_used,
                cores=node.cores,
                cores_used=node.cores_used,
                memory_mib=node.memory_mib,
                memory_used_mib=node.memory_used_mib,
            )
            for node in await link.nodes()
        ]
