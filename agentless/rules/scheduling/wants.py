"""What tasks need, as a plan looks at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.shape import Amounts, shape_of
from agentless.rules.scheduling.timeline.node import NOTHING, NodeTimeline
from agentless.rules.scheduling.together import Want


@dataclass(frozen=True, slots=True)
class Wants:
    """What the tasks of one pass need.

    `favoured` are the owners with a reservation, `lengths` the estimated seconds of tasks without a limit, by task id.
    """

    favoured: frozenset[str]
    lengths: Mapping[str, float]

    def of(self, task: Task) -> Want:
        """The shape and the amounts of a task."""
        shape = shape_of(task.spec, task.owner if task.owner in self.favoured else "")
        return shape, amounts_of(task, self.lengths)


def favoured_owners(nodes: Iterable[NodeTimeline], queue: Iterable[Task]) -> frozenset[str]:
    """The owners with a reservation."""
    reservations = [reservation for node in nodes for reservation in node.reservations]
    if not reservations:
        return frozenset()
    owners = {task.owner for task in queue}
    return frozenset(owner for owner in owners if any(each.lets(owner) for each in reservations))


def amounts_of(task: Task, lengths: Mapping[str, float] = NOTHING) -> Amounts:
    """The cores, memory and length of a task. The length is its limit, else the estimate."""
    spec, limit = task.spec, task.spec.ends_within
    learned = lengths.get(task.id) if limit is None else None
    return Amounts(spec.cores or 0.0, float(spec.memory or 0), limit or learned or math.inf, learned is None)
