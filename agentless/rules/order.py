"""The order of the queue: what was given by hand, then priority, then owners in turn, then who came first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agentless.model.task import Task
from agentless.rules.rank import by_hand


def order(tasks: Iterable[Task]) -> list[Task]:
    """Those first that are next.

    Of equal priority, the owner comes first of whom less is in front already: two owners take turns, and nobody has
    to wait for all that another one has sent off at once. A task counts by its GPUs, and one without GPUs as one.
    """
    in_front: Counter[tuple[int, str]] = Counter()
    ranked = []
    for task in sorted(tasks, key=lambda task: (-task.spec.terms.priority, task.created_at, task.id)):
        priority, whose = task.spec.terms.priority, task.owner
        ranked.append((-priority, in_front[priority, whose], task.created_at, task.id, task))
        in_front[priority, whose] += max(1, task.spec.needs.gpus)
    return by_hand([entry[-1] for entry in sorted(ranked, key=lambda entry: entry[:-1])])
