"""On which terms a task gives way to others."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.model.nodes.cluster import Yields
from agentless.model.tasks.task import Paused, Placement, Running, Task
from agentless.rules.tasks.gangs.gangs import mates

LEEWAY = 5.0
"""Seconds after its grace time until a task that gives way is certainly seen to have ended."""


def yields_of(task: Task, lent: float | None = None) -> Yields | None:
    """The terms of a task that may be preempted, None for any other.

    `lent` is since when another task may have its place because its GPUs are idle. A task that is being stopped,
    whoever stops it, is not preempted, nor one that has not started yet. Of a gang, see `yields_of_gangs`.
    """
    terms, status = task.spec.terms, task.status
    if task.stop or not isinstance(status, (Running, Paused)) or not task.spec.traits.is_retried:
        return None
    within = task.spec.stop_grace + LEEWAY
    if terms.preemptible:
        return Yields(status.started_at + (terms.min_run or 0.0), within, status.started_at)
    if lent is not None and not task.spec.secret_env and not task.spec.gang:
        return Yields(lent, within, status.started_at)
    return None


def yields_of_gangs(tasks: Iterable[Task]) -> dict[str, Yields]:
    """The terms of the members of gangs that may be preempted, by task id: all give way together, or none does."""
    members = {task.id: task for task in tasks if task.spec.gang and task.spec.terms.preemptible}
    found = dict[str, Yields]()
    for task in members.values():
        gang = mates(task, members.get) if task.id not in found else []
        terms = [each for mate in gang if (each := yields_of(mate))]
        if gang and len(terms) == task.spec.gang_size:
            since, within = max(each.since for each in terms), max(each.within for each in terms)
            ids = tuple(mate.id for mate in gang)
            found |= {name: Yields(since, within, own.began, ids) for name, own in zip(ids, terms, strict=True)}
    return found


def asked_at(task: Task, until: float, early: float) -> float:
    """When a task is asked to give way, so that it has gone by then: `early` by so many seconds, if it may be."""
    last = until - task.spec.stop_grace - LEEWAY
    terms, status = task.spec.terms, task.status
    if terms.preemptible and isinstance(status, (Running, Paused)):
        return min(last, max(last - early, status.started_at + (terms.min_run or 0.0)))
    return last - early


def awaited_by(tasks: Iterable[Task], placement: Placement) -> str:
    """For which task some of these GPUs are kept, in words; empty if for none."""
    wanted = set(placement.gpu_uuids)
    waits = (task for task in tasks if (place := task.kept_place) and wanted.intersection(place.gpu_uuids))
    return next((f"task {task.id} of {task.owner}" for task in waits), "")
