"""How many tasks of one batch run at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agentless.model.task import Task


def released(queue: Iterable[Task], tasks: Iterable[Task]) -> list[Task]:
    """Those of the queue, in its order, that `--max-parallel` lets in beside the `tasks` that have a place already."""
    placed = Counter(task.batch for task in tasks if task.live and task.placement)
    found = []
    for task in queue:
        most = task.spec.terms.max_parallel
        if most is None or placed[task.batch] < most:
            placed[task.batch] += 1
            found.append(task)
    return found
