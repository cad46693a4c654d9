"""The order of the queue: as given by hand, then by priority, a fair share for each owner, and who came first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.rank import by_hand
from agentless.rules.usage.fair_share import expected

_NOBODY: Mapping[str, float] = {}


def order(tasks: Iterable[Task], used: Mapping[str, float] = _NOBODY) -> list[Task]:
    """Those first that are next; `used` are the GPU-hours that each owner has used lately.

    Of equal priority, the owner comes first who has used less, together with what is in front already: two owners who
    have used the same take turns, and nobody has to wait for all that another one has sent off at once.
    """
    in_front = dict(used)
    ranked = []
    for task in sorted(tasks, key=lambda task: (-task.spec.terms.priority, task.created_at, task.id)):
        hours = in_front.get(task.owner, 0.0)
        ranked.append((-task.spec.terms.priority, round(hours, 6), task))
        in_front[task.owner] = hours + expected(task)
    # Of those who are equal here, who came first stays first.
    return by_hand([task for *_, task in sorted(ranked, key=lambda entry: entry[:2])])
