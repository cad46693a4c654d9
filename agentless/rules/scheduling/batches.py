"""Who has to end before a task may start: one of its batch (`--max-parallel`), or tasks that it waits for."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.prerequisites import Prerequisites, latest
from agentless.rules.scheduling.stay import Stay
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.scheduling.timeline.node import NodeTimeline

ARRAY = 1000
"""The most tasks of a batch that a cluster gets as one array."""


class Turns:
    """Which tasks of the queue may start. `tasks` are all live ones; `add` adds those that get a place, in order.

    `stays` are the places of limited batches, by batch.
    """

    def __init__(self, queue: Sequence[Task], tasks: Sequence[Task], nodes: Mapping[str, NodeTimeline]) -> None:
        self.stays: dict[str, list[Stay]] = defaultdict(list)  # the last to end first
        self.prerequisites = Prerequisites(queue, tasks)
        for task in tasks:
            counts = task.spec.terms.max_parallel is not None or self.prerequisites.wants(task)
            if counts and task.live and task.placement:
                node = nodes.get(task.placement.node)
                load = node and node.load_of(task.id)
                gpus = node.these(task.placement.gpu_uuids) if node else ()
                self.add(task, Stay(load.end, node, gpus, load.sure) if load else Stay(FAR))

    def before(self, task: Task) -> Stay | None:
        """The place that has to become free before this task may start. None if it may start now."""
        most, last = task.spec.terms.max_parallel, self.prerequisites.before(task)
        if most is None or len(stays := self.stays[task.batch]) < most:
            return last
        return latest(stays[most - 1], last)

    def add(self, task: Task, stay: Stay) -> None:
        """Add the place that a task has, or is promised."""
        if task.spec.terms.max_parallel is not None:
            bisect.insort(self.stays[task.batch], stay, key=lambda each: -each.end)
        if self.prerequisites.wants(task):
            self.prerequisites.add(task, stay)

    def copy(self) -> Turns:
        """The same turns, to which other places can be added."""
        other = copy(self)
        other.stays = defaultdict(list, {batch: list(stays) for batch, stays in self.stays.items()})
        other.prerequisites = self.prerequisites.copy()
        return other


def within_limits(tasks: Sequence[Task], known: Iterable[Task]) -> list[Task]:
    """Those of the tasks that may go to clusters now, as far as their batches have limits; `known` are all others, too.

    A whole batch of which none has a place goes to its cluster at once, which limits it itself.
    """
    limited = {task.batch for task in tasks if task.spec.terms.max_parallel is not None}
    if not limited:
        return [*tasks]  # without a look at all others
    running, places = Counter[str](), defaultdict[str, set[str | None]](set)
    for each in known:
        if each.batch in limited and each.live:
            running[each.batch] += each.placement is not None
            places[each.batch].add(each.spec.needs.node)
    whole = {batch for batch in limited if not running[batch] and len(places[batch]) == 1}
    found = list[Task]()
    for task in tasks:
        most = ARRAY if task.batch in whole else task.spec.terms.max_parallel
        if most is None or running[task.batch] < most:
            running[task.batch] += 1
            found.append(task)
    return found


def is_held_back(task: Task, tasks: Iterable[Task]) -> bool:
    """Whether the limit of its batch is reached."""
    most = task.spec.terms.max_parallel
    mates = (each for each in tasks if each.batch == task.batch and each.live and each.placement)
    return most is not None and sum(1 for _ in mates) >= most
