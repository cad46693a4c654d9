"""The emptiest node. Spreads the load on cooling, disks and network."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """Taken GPUs, then the taken share of cores and memory."""
    return (len(node.gpus) - node.open_gpus, node.in_use)
