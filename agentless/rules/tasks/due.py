"""Events that happen to a task at a given time."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.tasks.task import KeptPlace, Paused, Pending, Running, Scheduled, Submitted, Task
from agentless.model.tasks.task_event import GaveUp, PlaceLost, Queued, StopAsked, TaskEvent
from agentless.model.units import format_duration

PLACE_LATE = 60.0
"""Seconds for which a place is kept longer than its victims should need."""

A_LOOK = 2.0
"""Seconds after which a new task has been planned once."""
A_CLUSTERS_LOOK = 10.0
"""Seconds after which a cluster has looked at a new job."""
_AT_ONCE = "could not start at once (--no-queue)"
_ELAPSED = "its --wait-for has elapsed"


@dataclass(frozen=True, slots=True)
class Due:
    """An event, its time (Unix seconds), and its cause in words."""

    at: float
    event: TaskEvent
    cause: str


def queued_since(task: Task) -> float:
    """When a task entered the queue."""
    return task.created_at if task.queued_at is None else task.queued_at


def due(task: Task) -> Due | None:
    """The next event by time, or None."""
    match task.status:
        case Scheduled(until=until):
            return Due(until, Queued(), "its start time has come")
        case Pending(place=KeptPlace() as place):
            # Whoever gave way did so for this task, so it does not give up now.
            cause = f"its place on {place.node} did not become free in time"
            return Due(place.until + PLACE_LATE, PlaceLost(cause), cause)
        case Pending() if (wait := task.spec.terms.wait_for) is not None:
            return Due(queued_since(task) + (wait or A_LOOK), GaveUp(_gave_up(wait)), _ELAPSED)
        case Submitted(since=since) if (wait := task.spec.terms.wait_for) is not None and not task.stop:
            since = max(since, task.spec.terms.start_at or 0.0)
            return Due(since + (wait or A_CLUSTERS_LOOK), StopAsked("stop", reason=_gave_up(wait)), _ELAPSED)
        case (Running() | Paused()) as status if not task.stop:
            return _limit(task, status.started_at)
        case _:
            return None


def _gave_up(wait: float) -> str:
    return f"gave up after {format_duration(wait)} in the queue (--wait-for)" if wait else _AT_ONCE


def _limit(task: Task, started_at: float) -> Due | None:
    """The end of the time limit. A pause does not extend it, since a paused task keeps its GPUs."""
    limit, before = task.spec.terms.time_limit, task.spec.terms.signal_before
    if limit is None:
        return None
    cause = f"reached its time limit of {format_duration(limit)}"
    if before is None:
        return Due(started_at + limit, StopAsked("timeout"), cause)
    early = f"SIG{task.spec.terms.signal} {format_duration(before)} before its time limit of {format_duration(limit)}"
    return Due(started_at + limit - before, StopAsked("timeout", before), early)


def within_limit(task: Task, grace: float, now: float) -> float:
    """The grace time, in seconds, limited so that the task does not end later than promises to others assume.

    It is never shorter than the grace time that the task was submitted with.
    """
    within = task.spec.ends_within
    if within is None or not isinstance(task.status, (Running, Paused)):
        return grace
    return min(grace, max(task.spec.stop_grace, task.status.started_at + within - now))
