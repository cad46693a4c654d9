"""What a task waits for that its cluster can wait for, in the place of our own queue.

There, a job that waits gains age. But a job of Slurm has one end: what may be tried again, or leaves files that have to
arrive first, is waited for here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentless.model.containers.job_id import job_number
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Blocked, Paused, Running, Submitted, Task
from agentless.rules.tasks.retry import is_last_try

MOST = 100
"""The most jobs that one waits for."""

_KINDS: Mapping[str, str] = {"completed": "afterok", "ended": "afterany"}
"""How Slurm calls it. A job that somebody cancels there has failed for Slurm, but not here: `failed` is left out."""


def jobs_awaited(task: Task, cluster: str, last_live: Callable[[str], Task | None]) -> tuple[str, ...]:
    """What a blocked task waits for, as jobs of its cluster: `afterok:4711`. Empty if some of it is waited for here."""
    terms, status = task.spec.terms, task.status
    if not isinstance(status, Blocked) or task.stop or task.spec.gang or len(status.on) > MOST:
        return ()
    if terms.if_impossible == "wait" or (terms.wait_for, terms.start_at, terms.max_parallel) != (None, None, None):
        return ()
    found = [_awaited(each, cluster, last_live(each.on)) for each in status.on]
    return tuple(filter(None, found)) if all(found) else ()


def _awaited(requirement: Requirement, cluster: str, before: Task | None) -> str:
    """One of these jobs; empty if it is waited for here."""
    kind = _KINDS.get(requirement.state)
    if requirement.batch or requirement.one_of or kind is None or before is None or before.node != cluster:
        return ""
    if before.stop or before.spec.gang or before.spec.outputs or not is_last_try(before):
        return ""
    number = job_number(before.container) if isinstance(before.status, Submitted | Running | Paused) else None
    return f"{kind}:{number}" if number else ""
