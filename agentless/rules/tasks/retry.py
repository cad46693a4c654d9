"""Whether a task that did not end well is tried again.

Each try is a task of its own: its log, its container and its end stay, whatever comes after. Its id follows from that
of the try before it, so that a controller which died in between makes the same one, and not two.
"""

from __future__ import annotations

from dataclasses import replace

from agentless.model.tasks.task import Ended, Lost, Pending, Task
from agentless.model.tasks.task_event import Delayed
from agentless.model.tasks.task_id import next_try

LONGEST = 3600.0
"""Seconds that a pause between two tries grows to at most, unless the first one is longer."""


def another_try(before: Task, after: Task, now: float) -> tuple[Task, Delayed] | None:
    """The next try and how it begins, when `before` has just come to an end, or was lost, as `after`; None without."""
    terms = after.spec.terms
    if (
        not after.spec.traits.is_retried
        or not before.live
        or after.stop in ("stop", "kill")
        or before.attempt > terms.retries
    ):
        return None
    if (word := _why(after)) is None:
        return None
    pause = min(max(LONGEST, terms.backoff), terms.backoff * 2 ** min(before.attempt - 1, 20))
    new = fresh_try(after, now)
    return new, Delayed(now + pause, f"try {new.attempt} of {terms.retries + 1}: {word}")


def fresh_try(task: Task, now: float) -> Task:
    """The try after this one, as it is taken in: where the volumes are that this one has had, if it has had some."""
    again = replace(task.afresh(Pending()), id=next_try(task.id), created_at=now)
    if task.spec.volumes and task.container and task.node:
        needs = replace(task.spec.needs, nodes=(task.node,))
        again = replace(again, spec=replace(task.spec, needs=needs))
    return again


def _why(task: Task) -> str | None:
    """The ending in words if it is one to try again after, None when it is not."""
    wanted, first = task.spec.terms.retry_on, f"task {task.id}"
    match task.status:
        case Lost() if "lost" in wanted:
            return f"{first} is lost"
        case Ended(state="killed_oom") if "oom" in wanted:
            return f"{first} ran out of memory"
        case Ended(state="timeout") if "timeout" in wanted:
            return f"{first} came to its time limit"
        case Ended(state="failed", exit_code=int(code)) if "failed" in wanted or f"exit:{code}" in wanted:
            return f"{first} ended with exit code {code}"
        case Ended(state="failed", container=None) if "failed" in wanted:
            return f"{first} could not be started"
        case _:  # also one whose container was removed by hand: somebody did not want it
            return None
