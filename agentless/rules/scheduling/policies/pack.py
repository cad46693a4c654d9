"""The fullest node where it fits: keeps whole nodes free for the tasks that need many GPUs at once."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """GPUs that are open, then the share of cores and memory that is."""
    return (node.open_gpus, -node.in_use)
