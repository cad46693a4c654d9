"""What the passing of time brings to a task."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.tasks.task import Paused, Pending, Running, Scheduled, Task
from agentless.model.tasks.task_event import GaveUp, Queued, StopAsked, TaskEvent
from agentless.model.units import format_duration

A_LOOK = 2.0
"""Seconds after which the queue has looked at a task that has come to it."""


@dataclass(frozen=True, slots=True)
class Due:
    """An event, when it comes (Unix seconds), and why, in words."""

    at: float
    event: TaskEvent
    cause: str


def due(task: Task) -> Due | None:
    """What comes next; None when nothing does by the passing of time alone."""
    match task.status:
        case Scheduled(until=until):
            return Due(until, Queued(), "its time has come")
        case Pending() if (wait := task.spec.terms.wait_for) is not None:
            since = task.created_at if task.queued_at is None else task.queued_at
            words = f"gave up after {format_duration(wait)} in the queue (--wait-for)"
            event = GaveUp(words if wait else "there was no place for it at once (--no-queue)")
            return Due(since + (wait or A_LOOK), event, "its time in the queue is over")
        case (Running() | Paused()) as status if not task.stop:
            return _limit(task, status.started_at)
        case _:
            return None


def _limit(task: Task, started_at: float) -> Due | None:
    """A paused task keeps its GPUs, and its time goes on."""
    limit, before = task.spec.terms.time_limit, task.spec.terms.signal_before
    if limit is None:
        return None
    cause = f"its time limit is {format_duration(limit)}"
    if before is None:
        return Due(started_at + limit, StopAsked("timeout"), cause)
    early = f"SIG{task.spec.terms.signal} {format_duration(before)} before its end: {cause}"
    return Due(started_at + limit - before, StopAsked("timeout", before), early)


def within_limit(task: Task, grace: float, now: float) -> float:
    """The grace time that is left of this one, in seconds: never beyond the moment at which others expect its end.

    It is never shorter than the time that the task was submitted with.
    """
    within = task.spec.ends_within
    if within is None or not isinstance(task.status, (Running, Paused)):
        return grace
    return min(grace, max(task.spec.stop_grace, task.status.started_at + within - now))
