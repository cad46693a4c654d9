"""Gangs: who belongs together, and what follows from one member for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.model.tasks.task import Assigning, Lost, Pending, Scheduled, Task


def named_members(tasks: Sequence[Task]) -> list[Task]:
    """New tasks, of which the members of each gang, which follow each other by rank, know their ids."""
    found, at = list[Task](), 0
    while at < len(tasks):
        gang = tasks[at].spec.gang
        some = tasks[at : at + (gang.size if gang else 1)]
        ids = tuple(task.id for task in some)
        found += [
            replace(task, spec=replace(task.spec, gang=replace(task.spec.gang, members=ids)))
            if task.spec.gang
            else task
            for task in some
        ]
        at += len(some)
    return found


def gang_key(task: Task) -> str | None:
    """The name of the try of the gang to which a task belongs; None for any other task."""
    return task.spec.gang.key(task.id) if task.spec.gang else None


def by_gang(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """The members among these tasks by the name of their gang's try, by rank."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if (key := gang_key(task)) is not None:
            found.setdefault(key, []).append(task)
    for members in found.values():
        members.sort(key=lambda task: task.spec.gang.rank if task.spec.gang else 0)
    return found


def is_to_be_undone(task: Task, live: Mapping[str, Task]) -> bool:
    """Whether a member has a place, and others of its gang are back in the queue: what it has on its node goes."""
    gang = task.spec.gang
    if gang is None or task.stop or not isinstance(task.status, (Assigning, Lost)) or task.container:
        return False
    mates = [live.get(mate) for mate in gang.of_try(task.id)]
    return any(mate and isinstance(mate.status, (Pending, Scheduled)) for mate in mates)
