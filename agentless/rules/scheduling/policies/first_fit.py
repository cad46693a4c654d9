"""The first node of the inventory where it fits: for machines that are written down in the order of liking."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """All nodes are alike."""
    return ()
