"""The fullest node where the task fits. Keeps whole nodes free for tasks with many GPUs."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """Free GPUs, then the free share of cores and memory."""
    return (node.open_gpus, -node.in_use)
