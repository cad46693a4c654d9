"""The node with the lowest load, by what is set aside and by the utilization of its GPUs."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """The share of taken GPUs, plus the share of cores or memory set aside, plus GPU utilization."""
    gpus = max(1, len(node.gpus))
    busy = sum(gpu.utilization for gpu in node.gpus) / gpus / 100
    return ((len(node.gpus) - node.open_gpus) / gpus + node.in_use + busy,)
