"""When the next task may try a node on which a launch has failed for a reason of the node.

A controller that starts anew knows of no breakdown, and finds out by one launch, which costs its task nothing.
"""

from __future__ import annotations

from dataclasses import replace

from agentless.errors import NodeBroken
from agentless.model.nodes.node import Breakdown

FIRST, LONGEST = 5.0, 300.0
"""Seconds before a node is tried again after the first failure, and at most; each failure doubles them."""


def failed(before: Breakdown | None, error: NodeBroken, now: float, *, bare: bool) -> Breakdown:
    """The breakdown after a launch that has just failed."""
    if before and now < before.again:  # it was under way when the other one failed
        return before
    pause = min(LONGEST, 2 * before.pause) if before else FIRST
    return Breakdown(str(error), error.fault, bare, now + pause, pause)


def restarted(before: Breakdown) -> Breakdown:
    """The breakdown once the engine or the node has been away: what was wrong may be repaired."""
    return replace(before, again=before.again - before.pause + FIRST, pause=FIRST)
