"""When a node may be tried again after a launch failed for a reason of the node.

A restarted controller knows of no breakdown. It finds out by one launch, and that does not count as a try of its task.
"""

from __future__ import annotations

from dataclasses import replace

from agentless.errors import NodeBroken
from agentless.model.nodes.node import Breakdown

FIRST, LONGEST = 5.0, 300.0
"""Seconds before the next attempt: after the first failure, and at most. Each failure doubles them."""


def failed(before: Breakdown | None, error: NodeBroken, now: float, *, bare: bool) -> Breakdown:
    """The breakdown after a failed launch."""
    if before and now < before.again:  # this launch was under way when another one failed
        return before
    pause = min(LONGEST, 2 * before.pause) if before else FIRST
    return Breakdown(str(error), error.fault, bare, now + pause, pause)


def restarted(before: Breakdown) -> Breakdown:
    """The breakdown after a restart of the engine or the node, which may have repaired it."""
    return replace(before, again=before.again - before.pause + FIRST, pause=FIRST)
