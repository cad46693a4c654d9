"""The requests about clusters with queues of their own."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI

from agentless.controller.nodes.cluster_link import ANSWER_WITHIN
from agentless.controller.nodes.registry import Nodes
from agentless.errors import NoAnswer, RuntimeFailed
from agentless.model.view import ClusterNodeView, ClusterView
from agentless.rules.views.publish import cluster_node_view


class ClusterServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes


def add_to(app: FastAPI, services: ClusterServices) -> None:
    """Add them."""

    @app.get("/v1/clusters")
    async def clusters() -> list[ClusterView]:
        """List all clusters, each with its nodes and GPUs as of the last look, some 30 seconds ago at most."""
        return services.nodes.cluster_views()

    @app.get("/v1/clusters/{cluster}/nodes")
    async def cluster_nodes(cluster: str) -> list[ClusterNodeView]:
        """List the compute nodes of a cluster, as it knows them; if it does not answer, as of the last look."""
        link, as_of = services.nodes.cluster_link(cluster), None
        try:
            await link.ready(within=ANSWER_WITHIN)
            nodes = await link.nodes(within=ANSWER_WITHIN)
        except (NoAnswer, RuntimeFailed):
            if link.inside_at is None:
                raise
            nodes, as_of = link.inside, link.inside_at
        return [cluster_node_view(node, as_of) for node in nodes]
