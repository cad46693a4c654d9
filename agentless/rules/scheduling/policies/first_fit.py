"""The first node of the inventory where the task fits. For inventories in order of preference."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """All nodes cost the same."""
    return ()
