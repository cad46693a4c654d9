"""The node that has the least to do, by what is set aside and by how busy its GPUs are."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """The share of its GPUs that is taken, of its cores and memory that is set aside, and of its GPUs' time in use."""
    gpus = max(1, len(node.gpus))
    busy = sum(gpu.utilization for gpu in node.gpus) / gpus / 100
    return ((len(node.gpus) - node.open_gpus) / gpus + node.in_use + busy,)
