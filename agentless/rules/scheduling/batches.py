"""How many tasks of one batch run at a time (`--max-parallel`)."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.gpu_timeline import FAR, GpuTimeline
from agentless.rules.scheduling.node_timeline import NodeTimeline


@dataclass(frozen=True, slots=True)
class Stay:
    """The place of a task of a batch, and until when it has it (Unix seconds). `node` is None if the node is gone.

    `sure` is False if the end was estimated from earlier runs.
    """

    end: float
    node: NodeTimeline | None = None
    gpus: Sequence[GpuTimeline] = ()
    sure: bool = True


class Turns:
    """Which tasks of a batch may start. `placed` are tasks with a place; `add` adds those that get one, in order."""

    def __init__(self, placed: Iterable[Task], nodes: Mapping[str, NodeTimeline]) -> None:
        self._stays: dict[str, list[Stay]] = defaultdict(list)  # by batch, the last to end first
        for task in placed:
            if task.spec.terms.max_parallel is not None and task.live and task.placement:
                node = nodes.get(task.placement.node)
                load = node and node.load_of(task.id)
                gpus = node.these(task.placement.gpu_uuids) if node else ()
                self.add(task, Stay(load.end, node, gpus, load.sure) if load else Stay(FAR))

    def before(self, task: Task) -> Stay | None:
        """The place that has to become free before this task may start. None if it may start now."""
        most = task.spec.terms.max_parallel
        stays = self._stays[task.batch] if most is not None else []
        return stays[most - 1] if most is not None and len(stays) >= most else None

    def add(self, task: Task, stay: Stay) -> None:
        """Add the place that a task has, or is promised."""
        if task.spec.terms.max_parallel is not None:
            bisect.insort(self._stays[task.batch], stay, key=lambda each: -each.end)


def is_held_back(task: Task, tasks: Iterable[Task]) -> bool:
    """Whether the limit of its batch is reached."""
    most = task.spec.terms.max_parallel
    mates = (each for each in tasks if each.batch == task.batch and each.live and each.placement)
    return most is not None and sum(1 for _ in mates) >= most
