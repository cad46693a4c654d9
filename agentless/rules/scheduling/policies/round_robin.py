"""One node after the other: the one whose last start is the longest ago."""

from __future__ import annotations

from agentless.rules.scheduling.timeline.node import NodeTimeline


def cost(node: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """The time of its last start."""
    return (node.last_start,)
