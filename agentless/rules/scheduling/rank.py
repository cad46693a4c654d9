"""Places in the queue that were given by hand.

A task that was moved comes next after those that were in front of it then, wherever they are by now; when the last of
them has left the queue, it is the first. All others stay in their order, and who was moved last has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.tasks.task import Rank, Task


def by_hand(queue: Sequence[Task]) -> list[Task]:
    """The queue with those that were moved in the places that they were given."""
    moved = sorted((task.rank.turn, task.id, task.rank.behind, task) for task in queue if task.rank)
    if not moved:
        return list(queue)
    found = [task for task in queue if not task.rank]
    for _, _, behind, task in moved:
        front = set(behind)
        found.insert(max((at for at, other in enumerate(found, 1) if other.id in front), default=0), task)
    return found


def ranks_after_move(queue: Sequence[Task], task: Task, position: int) -> Mapping[str, Rank]:
    """The ranks, by task id, that put one that waits at a position from 1 on and leave the others in their order.

    Others have to be ranked anew only where their place hung on that of this one. Raises UsageError when there is no
    such position.
    """
    if not 1 <= position <= len(queue):
        waiting = "only this task waits" if len(queue) == 1 else f"{len(queue)} tasks wait"
        raise UsageError(f"there is no position {position}: {waiting}; write one from 1 to {len(queue)}")
    wanted = [other for other in queue if other.id != task.id]
    turn = max((other.rank.turn for other in queue if other.rank), default=0) + 1
    rank = Rank(tuple(other.id for other in wanted[: position - 1]), turn)
    wanted.insert(position - 1, replace(task, rank=rank))
    if by_hand([other for other in queue if other.id != task.id] + [wanted[position - 1]]) == wanted:
        return {task.id: rank}
    ids = [other.id for other in wanted]
    return {other.id: Rank(tuple(ids[:at]), turn) for at, other in enumerate(wanted) if other.rank}
