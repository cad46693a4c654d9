"""The smallest GPUs that are large enough. Keeps large ones free for tasks that need them."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:
    """Unneeded GPU memory; of equals, the fullest node."""
    return (spare, node.open_gpus)
