"""The emptiest node: keeps tasks out of each other's way, for cooling, disks and network."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """GPUs that are taken, then the share of cores and memory that is."""
    return (len(node.gpus) - node.open_gpus, node.in_use)
