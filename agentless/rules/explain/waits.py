"""What a blocked task waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence

from agentless.model.tasks.requirement import Requirement


def waits_for(on: Sequence[Requirement]) -> str:
    """`waits for task 2mxf and for batch 2mxg to end`."""
    named = [_named(each) for each in on[:MOST]]
    if len(on) > MOST:
        named[MOST - 1 :] = [f"for {len(on) - MOST + 1} more"]
    return "waits " + (", ".join(named[:-1]) + " and " + named[-1] if len(named) > 1 else "".join(named))


MOST = 3
"""The most tasks and batches that are named."""

_HOW = {"completed": "", "failed": " to fail", "ended": " to end"}


def _named(requirement: Requirement) -> str:
    return f"for {'batch' if requirement.batch else 'task'} {requirement.on}{_HOW[requirement.state]}"
