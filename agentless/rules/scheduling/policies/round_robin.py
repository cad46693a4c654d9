"""One node after the other: the one whose last task was started the longest ago."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """When its last task was started."""
    return (node.last_start,)
