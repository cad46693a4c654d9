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
    """Until when one of a batch has its place (Unix seconds), and which: None on a node that is not there any more.

    `sure` unless nobody knows for certain.
    """

    end: float
    node: NodeTimeline | None = None
    gpus: Sequence[GpuTimeline] = ()
    sure: bool = True


class Turns:
    """Whose turn it is. `placed` are the tasks that have a place; those that get one are added in their order."""

    def __init__(self, placed: Iterable[Task], nodes: Mapping[str, NodeTimeline]) -> None:
        self._stays: dict[str, list[Stay]] = defaultdict(list)  # by batch, the last to end first
        for task in placed:
            if task.spec.terms.max_parallel is not None and task.live and task.placement:
                node = nodes.get(task.placement.node)
                load = node and node.load_of(task.id)
                gpus = node.these(task.placement.gpu_uuids) if node else ()
                self.add(task, Stay(load.end, node, gpus, load.sure) if load else Stay(FAR))

    def before(self, task: Task) -> Stay | None:
        """Whose end makes it the turn of this task; None when it is its turn now."""
        most = task.spec.terms.max_parallel
        stays = self._stays[task.batch] if most is not None else []
        return stays[most - 1] if most is not None and len(stays) >= most else None

    def add(self, task: Task, stay: Stay) -> None:
        """This task has a place, or will have it."""
        if task.spec.terms.max_parallel is not None:
            bisect.insort(self._stays[task.batch], stay, key=lambda each: -each.end)


def is_held_back(task: Task, tasks: Iterable[Task]) -> bool:
    """Whether so many of its batch have a place now that it may have none."""
    most = task.spec.terms.max_parallel
    mates = (each for each in tasks if each.batch == task.batch and each.live and each.placement)
    return most is not None and sum(1 for _ in mates) >= most
