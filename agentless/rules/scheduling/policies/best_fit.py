"""The smallest GPUs that are large enough: keeps the large ones for those who need them."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:
    """Memory of a GPU that would be wasted; of equals the fullest node."""
    return (spare, node.open_gpus)
