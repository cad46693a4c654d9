"""Who has to end before a task may start: one of its batch (`--max-parallel`), or tasks that it waits for."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.gpu_timeline import FAR
from agentless.rules.scheduling.node_timeline import NodeTimeline
from agentless.rules.scheduling.prerequisites import Prerequisites, latest
from agentless.rules.scheduling.stay import Stay


class Turns:
    """Which tasks of the queue may start. `tasks` are all live ones; `add` adds those that get a place, in order."""

    def __init__(self, queue: Sequence[Task], tasks: Sequence[Task], nodes: Mapping[str, NodeTimeline]) -> None:
        self._stays: dict[str, list[Stay]] = defaultdict(list)  # by batch, the last to end first
        self._prerequisites = Prerequisites(queue, tasks)
        for task in tasks:
            counts = task.spec.terms.max_parallel is not None or self._prerequisites.wants(task)
            if counts and task.live and task.placement:
                node = nodes.get(task.placement.node)
                load = node and node.load_of(task.id)
                gpus = node.these(task.placement.gpu_uuids) if node else ()
                self.add(task, Stay(load.end, node, gpus, load.sure) if load else Stay(FAR))

    def before(self, task: Task) -> Stay | None:
        """The place that has to become free before this task may start. None if it may start now."""
        most = task.spec.terms.max_parallel
        stays = self._stays[task.batch] if most is not None else []
        mate = stays[most - 1] if most is not None and len(stays) >= most else None
        return latest(mate, self._prerequisites.before(task))

    def add(self, task: Task, stay: Stay) -> None:
        """Add the place that a task has, or is promised."""
        if task.spec.terms.max_parallel is not None:
            bisect.insort(self._stays[task.batch], stay, key=lambda each: -each.end)
        if self._prerequisites.wants(task):
            self._prerequisites.add(task, stay)


def is_held_back(task: Task, tasks: Iterable[Task]) -> bool:
    """Whether the limit of its batch is reached."""
    most = task.spec.terms.max_parallel
    mates = (each for each in tasks if each.batch == task.batch and each.live and each.placement)
    return most is not None and sum(1 for _ in mates) >= most
