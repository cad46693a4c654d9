"""The tasks ahead of a task in the queue, and the places promised to them: obstacles for this task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.units import format_duration
from agentless.rules.explain.flaws import Flaw, flaw_sentences
from agentless.rules.explain.obstacles import Obstacle, flaw_of
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.search import Cost
from agentless.rules.scheduling.shape import shape_of
from agentless.rules.scheduling.timeline.promise import Promise


@dataclass(frozen=True, slots=True)
class Ahead:
    """The tasks ahead of one, in order, with the other arguments of `rules/scheduling/plan`.

    `promises` are those of these tasks and of the one behind them.
    """

    tasks: Sequence[Task] = ()
    promises: Mapping[str, Promise | None] = field(default_factory=dict)
    policies: Mapping[str | None, Cost] = field(default_factory=dict)
    lengths: Mapping[str, float] = field(default_factory=dict)
    placed: Sequence[Task] = ()

    def leave(self, cluster: Cluster, *members: Task) -> bool:
        """Whether a task, or all of a gang, that nothing else prevents starts after all ahead of it were placed."""
        if not self.tasks and len(members) == 1:
            return True
        before = Plan(promises=self.promises)
        queue = [*self.tasks, *members]
        found = plan(cluster, queue, cluster.at, self.policies, before, lengths=self.lengths, placed=self.placed)
        return all(task.id in found.starts for task in members)

    def on(self, node: Node) -> list[tuple[Task, Promise]]:
        """The tasks that are promised a place on a node, with their promises."""
        found = ((task, self.promises.get(task.id)) for task in self.tasks)
        return [(task, promise) for task, promise in found if promise and promise.node == node.name]

    def obstacles(self, node: Node, task: Task, now: float) -> tuple[Obstacle, ...]:
        """The obstacles that these promises are, on a node that has no other."""
        shape, found, others = shape_of(task.spec, task.owner), list[Flaw](), list[str]()
        fit = {gpu.reading.uuid: gpu.reading.number for gpu in node.gpus if shape.gpus and not flaw_of(gpu, shape)}
        if shape.indices:
            fit = {uuid: number for uuid, number in fit.items() if number in shape.indices}
        end = now + (task.spec.ends_within or self.lengths.get(task.id) or math.inf)
        for each, promise in self.on(node):
            if promise.start is not None and promise.start >= end:
                continue
            words = f"promised to {_called(each)}{_when(promise, now)}"
            if wanted := [fit[uuid] for uuid in promise.gpu_uuids if uuid in fit]:
                found += [Flaw(number, "is", f"free but {words}") for number in wanted]
            elif _compete(task.spec, each.spec):
                others.append(f"part of the node is {words}")
        if not found and not others:
            return ()
        text = f"the free resources of {node.name} are promised to tasks ahead of it"
        return (Obstacle(text, details=(*flaw_sentences(found), *others)),)


def _compete(one: TaskSpec, other: TaskSpec) -> bool:
    """Whether both tasks want the same resource of a node other than GPUs."""
    alone = one.needs.exclusive or other.needs.exclusive
    return alone or bool(one.cores and other.cores) or bool(one.memory and other.memory)


def _called(task: Task) -> str:
    return f"task {task.id} of {task.owner}" + (f" ({task.spec.name})" if task.spec.name else "")


def _when(promise: Promise, now: float) -> str:
    if promise.start is None:
        return ""
    left = promise.start - now
    return f", starting in {'about ' * promise.about}{format_duration(left)}" if left >= 1 else ", starting any moment"
