"""Whether a failed task is tried again.

Each try is a task of its own and keeps its log, container and end. Its id follows from the id of the previous try, so a
controller that died in between makes the same one, not a second one.
"""

from __future__ import annotations

from dataclasses import replace

from agentless.model.tasks.task import Ended, Lost, Pending, Task
from agentless.model.tasks.task_event import Delayed, Queued
from agentless.model.tasks.task_id import is_task_id, next_try

LONGEST = 3600.0
"""The longest pause between two tries in seconds, unless the first one is longer."""


def another_try(before: Task, after: Task, now: float) -> tuple[Task, Delayed | Queued] | None:
    """The next try and its first event, after `before` has ended or was lost as `after`. None if there is no retry."""
    terms = after.spec.terms
    if not after.spec.traits.is_retried or not before.live or not is_task_id(next_try(after.id)):
        return None
    if is_requeued(after):
        return _requeued(after, now), Queued()
    if after.stop in ("stop", "kill") or before.tries > terms.retries:
        return None
    if (word := _why(after)) is None:
        return None
    pause = min(max(LONGEST, terms.backoff), terms.backoff * 2 ** min(before.tries - 1, 20))
    new = fresh_try(after, now)
    return new, Delayed(now + pause, f"try {new.tries} of {terms.retries + 1}: {word}")


def is_requeued(ended: Task) -> bool:
    """Whether a task that has ended goes back to the queue, because it was preempted."""
    return ended.state == "preempted" and ended.spec.terms.on_preempt == "requeue"


def is_last_try(task: Task) -> bool:
    """Whether no other try can follow by itself."""
    terms = task.spec.terms
    return task.tries > terms.retries and not (terms.preemptible and terms.on_preempt == "requeue")


def next_of(mate: Task, ended: Task, now: float) -> Task:
    """The next try of a member, after one of its gang has ended."""
    return _requeued(mate, now) if is_requeued(ended) else fresh_try(mate, now)


def _requeued(task: Task, now: float) -> Task:
    """The next try of a preempted task. It waits since it was submitted, and this costs it none of its retries."""
    new = fresh_try(task, now)
    return replace(new, created_at=task.created_at, rank=task.rank, queued_at=now, preemptions=task.preemptions + 1)


def fresh_try(task: Task, now: float) -> Task:
    """The next try. It is bound to the node of this one if that has its volumes."""
    again = replace(task.afresh(Pending()), id=next_try(task.id), created_at=now, spec=task.spec.unmet())
    if task.spec.volumes and task.container and task.node:
        needs = replace(task.spec.needs, nodes=(task.node,))
        again = replace(again, spec=replace(again.spec, needs=needs))
    return again


def _why(task: Task) -> str | None:
    """The end in words if the task is to be tried again, else None."""
    wanted, first = task.spec.terms.retry_on, f"task {task.id}"
    match task.status:
        case Lost() if "lost" in wanted:
            return f"{first} is lost"
        case Ended(state="killed_oom") if "oom" in wanted:
            return f"{first} ran out of memory"
        case Ended(state="timeout") if "timeout" in wanted:
            return f"{first} reached its time limit"
        case Ended(state="failed", exit_code=int(code)) if "failed" in wanted or f"exit:{code}" in wanted:
            return f"{first} ended with exit code {code}"
        case Ended(state="failed", container=None) if "failed" in wanted:
            return f"{first} could not start"
        case _:  # includes a container that was removed by hand: a user did not want the task
            return None
