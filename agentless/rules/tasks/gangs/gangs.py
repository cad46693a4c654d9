"""Gangs: who belongs together, and what follows from one member for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from agentless.model.tasks.task import Assigning, Ended, Lost, Pending, Scheduled, Task
from agentless.model.tasks.task_id import previous_try


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


def is_mate(task: Task, other: Task) -> bool:
    """Whether another task is in the same try of the same gang, and says so itself: labels may name any task."""
    gang, its = task.spec.gang, other.spec.gang
    if gang is None or its is None or gang.members != its.members or task.owner != other.owner:
        return False
    ids = gang.of_try(task.id)
    return ids[gang.rank : gang.rank + 1] == (task.id,) and ids[its.rank] == other.id


def mates(task: Task, find: Callable[[str], Task | None]) -> list[Task]:
    """The members of a task's gang, itself included, that are found, in the same try and by rank."""
    found = map(find, task.spec.gang.of_try(task.id) if task.spec.gang else ())
    return [each for each in found if each and is_mate(task, each)]


def unit_of(task: Task, find: Callable[[str], Task | None]) -> list[Task]:
    """The `mates` of a task; of one that is in no gang, or of which none is found, itself."""
    return mates(task, find) or [task]


def by_gang(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """The members among these tasks by the name of their gang's try, by rank."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if gang := task.spec.gang:
            found.setdefault(gang.key(task.id), []).append(task)
    for members in found.values():
        members.sort(key=lambda task: task.spec.gang.rank if task.spec.gang else 0)
    return found


def members_together(queue: Iterable[Task]) -> list[tuple[Task, ...]]:
    """The tasks in their order, in which members of one gang that follow each other are one."""
    return [tuple(unit) for _, unit in groupby(queue, key=lambda task: gang_key(task) or task.id)]


def is_to_be_undone(task: Task, live: Mapping[str, Task]) -> bool:
    """Whether a member has a place, and others of its gang are back in the queue: what it has on its node goes."""
    gang = task.spec.gang
    if gang is None or task.stop or not isinstance(task.status, (Assigning, Lost)) or task.container:
        return False
    return any(isinstance(mate.status, (Pending, Scheduled)) for mate in mates(task, live.get))


def why_all_end(members: Sequence[Task]) -> str | None:
    """Why one member ends the gang, in words: its own end, or the loss of its node; None if none of them does."""
    return next(filter(None, (_why_all_end(member, members) for member in members)), None)


def _why_all_end(member: Task, mates: Sequence[Task]) -> str | None:
    gang, status = member.spec.gang, member.status
    if gang is None:
        return None
    if gang.on_member_failure == "continue" and not (isinstance(status, Ended) and status.container is None):
        return None  # one that never started leaves no gang to go on
    if isinstance(status, Ended):
        return how_it_ended(member) if status.container else status.reason
    if isinstance(status, Lost) and any(mate.container for mate in mates):
        return f"{_rank_of(member)} is lost: {status.reason}"
    return None


def how_it_ended(member: Task) -> str | None:
    """How a member of a gang has ended, with its rank, in words; None if it completed, and for any other task."""
    status = member.status
    if not isinstance(status, Ended) or not member.spec.gang or status.state == "completed":
        return None
    words = f"{_rank_of(member)} {_ENDS[status.state]}"
    if status.state != "failed":
        return words
    if status.exit_code:
        return f"{words} with exit code {status.exit_code}"
    return words + (f": {status.reason}" if status.reason else "")


def _rank_of(member: Task) -> str:
    rank = member.spec.gang.rank if member.spec.gang else 0
    return f"rank {rank}" + (f" on {member.node}" if member.node else "")


_ENDS: Mapping[str, str] = {
    "failed": "failed",
    "killed": "was killed",
    "killed_oom": "ran out of memory",
    "timeout": "reached its time limit",
    "stopped": "was stopped",
    "preempted": "was preempted",
    "cancelled": "was cancelled",
}


def is_held_by_last_try(task: Task, live: Mapping[str, Task]) -> bool:
    """Whether members of the try before this one have not ended yet. One that is lost may never end."""
    if task.spec.gang is None or task.attempt < 2:
        return False
    last = [live.get(each) for each in task.spec.gang.of_try(previous_try(task.id))]
    return any(each is not None and not isinstance(each.status, Lost) for each in last)


def would_be_members(tasks: Sequence[Task]) -> list[Task]:
    """The members of a gang that is only asked about, with ids; another task as it is."""
    if len(tasks) == 1:
        return list(tasks)
    return named_members([replace(task, id=f"{'#' * rank}") for rank, task in enumerate(tasks)])


def asked_together(members: Sequence[Task]) -> str:
    """What the members of a gang need, in short; of any other task what it needs."""
    needs = list(dict.fromkeys(str(each.spec.needs) for each in members))
    if len(members) == 1:
        return needs[0]
    return f"{needs[0]} on {len(members)} nodes" if len(needs) == 1 else " and ".join(needs)
