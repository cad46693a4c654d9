"""Positions in the queue that were set by hand.

A moved task comes right after the tasks that were in front of it then, wherever they are now. When all of them have
left the queue, it is the first. Other tasks keep their order. Of several moves, the last one counts.

Nobody moves a task before one for which a place is kept, nor a preemptible task before one that is not: that one would
preempt it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.tasks.task import Rank, Task


def standing(task: Task) -> int:
    """Who comes first, whatever else: tasks for which a place is kept, and preemptible ones last."""
    return 0 if task.kept_place else 2 if task.spec.terms.preemptible else 1


def by_hand(queue: Sequence[Task]) -> list[Task]:
    """The queue with moved tasks at their positions."""
    return sorted(_moved(queue), key=standing)


def _moved(queue: Sequence[Task]) -> list[Task]:
    moved = sorted((task.rank.turn, task.id, task.rank.behind, task) for task in queue if task.rank)
    if not moved:
        return list(queue)
    found = [task for task in queue if not task.rank]
    for _, _, behind, task in moved:
        front = set(behind)
        found.insert(max((at for at, other in enumerate(found, 1) if other.id in front), default=0), task)
    return found


def ranks_after_move(queue: Sequence[Task], task: Task, position: int) -> Mapping[str, Rank]:
    """The ranks, by task id, that put a pending task at a position (from 1) and keep the order of the others.

    Other moved tasks get a new rank only if their position depends on this one. Raises UsageError if there is no
    such position.
    """
    if not 1 <= position <= len(queue):
        waiting = "only this task is pending" if len(queue) == 1 else f"{len(queue)} tasks are pending"
        to = f" to {len(queue)}" if len(queue) > 1 else ""
        raise UsageError(f"position {position} is out of range: {waiting}; use 1{to}")
    alike = [at for at, other in enumerate(queue, 1) if standing(other) == standing(task)]
    if not alike[0] <= position <= alike[-1]:
        most = f"{alike[0]} to {alike[-1]}" if len(alike) > 1 else f"{alike[0]}"
        why = "it is preemptible" if task.spec.terms.preemptible else "others are preemptible, or waited for"
        raise UsageError(f"position {position} is not for task {task.id}: {why}; use {most}")
    wanted = [other for other in queue if other.id != task.id]
    turn = max((other.rank.turn for other in queue if other.rank), default=0) + 1
    rank = Rank(tuple(other.id for other in wanted[: position - 1]), turn)
    wanted.insert(position - 1, replace(task, rank=rank))
    if by_hand([other for other in queue if other.id != task.id] + [wanted[position - 1]]) == wanted:
        return {task.id: rank}
    ids = [other.id for other in wanted]
    return {other.id: Rank(tuple(ids[:at]), turn) for at, other in enumerate(wanted) if other.rank}
