"""The order of the queue: moved tasks, then priority, fair share of the owner, and time of submission.

Preemptible tasks come after all others, in the same order among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.rank import by_hand
from agentless.rules.tasks.gangs.gangs import by_gang, gang_key
from agentless.rules.usage.fair_share import expected

_NOBODY: Mapping[str, float] = {}


def order(
    tasks: Iterable[Task], used: Mapping[str, float] = _NOBODY, lent: Mapping[str, float] = _NOBODY
) -> list[Task]:
    """The tasks in the order in which they are planned; `used` are the recent GPU-hours of each owner.

    `lent` are those of preemptible tasks, which count for these only.

    At equal priority, the owner who has used less comes first. The tasks in front count as used: so owners with equal
    use take turns, and no owner waits for all tasks that another one has submitted at once.
    """
    in_front_of = {False: dict(used), True: dict(lent)}
    ranked = []
    gangs = by_gang(first := list(tasks))
    if gangs:
        first = [task for task in first if (key := gang_key(task)) is None or task is gangs[key][0]]
    for task in sorted(first, key=lambda task: (-task.spec.terms.priority, task.created_at, task.id)):
        in_front = in_front_of[task.spec.terms.preemptible]
        hours = in_front.get(task.owner, 0.0)
        ranked.append((-task.spec.terms.priority, round(hours, 6), task))
        in_front[task.owner] = hours + sum(map(expected, _mates(task, gangs)))
    # The sort is stable: equal tasks stay in the order of submission.
    found = by_hand([task for *_, task in sorted(ranked, key=lambda entry: entry[:2])])
    return [each for task in found for each in _mates(task, gangs)] if gangs else found


def _mates(task: Task, gangs: Mapping[str, list[Task]]) -> list[Task]:
    """The members of its gang that wait; of any other task itself."""
    return gangs[task.spec.gang.key(task.id)] if task.spec.gang else [task]
