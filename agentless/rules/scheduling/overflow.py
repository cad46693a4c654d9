"""Overflow: which tasks go from the queue to a cluster, when, and why others do not.

A task is for nodes first. Its expected waiting is the time from when it entered the queue until it is expected to
start. While no certain time is known for that, it is what it has waited so far. Once it reaches the limit, the task is
due. A task that no node can ever run is due at once; one for which others give way already is not due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentless.errors import UsageError
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import unreachable
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.units import format_duration
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.submit.cluster import check_for_overflow
from agentless.rules.submit.cluster_gpus import lacks, with_type
from agentless.rules.tasks.due import queued_since


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """A cluster as it is known now: `silence` is why it does not answer, `nodes` are None before their first answer.

    `refused` says that it did not take the job of the task that is meant, and why; empty if that is not so. `gone`: the
    inventory has no such cluster any more.
    """

    name: str
    config: SlurmCluster = field(default_factory=SlurmCluster)
    nodes: Sequence[ClusterNode] | None = None
    silence: str | None = None
    refused: str = ""
    gone: bool = False

    def refuses(self, spec: TaskSpec) -> str:
        """Why it cannot take a task, in words; empty if it can."""
        if self.gone:
            return f"{self.name} is no longer in the inventory"
        if self.refused:
            return self.refused
        try:
            check_for_overflow(spec, self.name, self.config)
            if self.nodes is not None:
                spec = with_type(spec, self.name, self.nodes)
        except UsageError as error:
            return str(error)
        return lacks(spec.needs, self.name, self.nodes or ())

    @property
    def unknown(self) -> str:
        """Why it cannot be told whether it can take a task, in words; empty if that can be told."""
        if self.silence is not None:
            return unreachable(self.name, self.silence)
        return f"the nodes of {self.name} are not known yet" if self.nodes is None else ""


def takers(spec: TaskSpec, clusters: Sequence[KnownCluster]) -> list[KnownCluster]:
    """Those of these clusters that can take a task, those that answer first."""
    found = [each for each in clusters if not each.refuses(spec)]
    return sorted(found, key=lambda each: bool(each.unknown))


def deadline(task: Task, after: float) -> float:
    """When a task is due at the latest."""
    return queued_since(task) + after


def is_due(task: Task, promise: Promise | None, now: float, after: float) -> bool:
    """Whether no node is expected to start a task in time."""
    if task.kept_place:
        return False
    start = promise.start if promise and promise.firm else None
    return max(now, start or now) >= deadline(task, after)


def going(
    queue: Sequence[Task],
    promises: Mapping[str, Promise | None],
    now: float,
    after: float,
    to: Callable[[Task], str | None],
    is_hopeless: Callable[[Task], bool],
) -> dict[str, str]:
    """The tasks of a sorted queue that go to clusters now, by id: the first that is due, and those that are like it.

    The others are planned once more without these, which may make nodes free for them. `promises` are those of tasks
    that do not start now; None is one that is unknown. `to` gives the cluster that takes a task, and `is_hopeless` says
    whether no node can ever run it.
    """
    first, found = None, dict[str, str]()
    for task in queue:
        if task.id not in promises or task.spec.needs.nodes or task.kept_place:
            continue
        promise = promises[task.id]
        due = is_due(task, promise, now, after)
        if first is None:
            if (due or (promise is None and is_hopeless(task))) and (cluster := to(task)):
                first, hopeless, found[task.id] = task, not due, cluster
        elif _is_like(task, first):
            # In the place that the first one leaves, it would be due all the same.
            late = hopeless or (due and is_due(task, promises[first.id], now, after))
            if late and (cluster := to(task)):
                found[task.id] = cluster
    return found


def cause_words(task: Task, promise: Promise | None, now: float, *, hopeless: bool) -> str:
    """Why a task goes to a cluster now."""
    if hopeless:
        return "no node can ever run it"
    since = queued_since(task)
    if promise and promise.firm and promise.start is not None:
        return f"it is expected to wait {format_duration(max(now, promise.start) - since)} for a node"
    return f"it has waited {format_duration(now - since)} for a node, and its start there is unknown"


def overflow_words(
    task: Task,
    promise: Promise | None,
    now: float,
    after: float,
    clusters: Sequence[KnownCluster],
    *,
    hopeless: bool = False,
) -> str:
    """Whether a waiting task goes to a cluster and when, in words; empty if it is for nodes only."""
    if not clusters:
        return ""
    if not (able := takers(task.spec, clusters)):
        reasons = "; ".join(dict.fromkeys(each.refuses(task.spec) for each in clusters))
        return f"cannot go to {' or '.join(each.name for each in clusters)}: {reasons}"
    first = able[0]
    if task.kept_place:
        return f"does not go to {first.name}, because others give way for it"
    if not hopeless and not is_due(task, promise, now, after):
        left = format_duration(deadline(task, after) - now)
        return f"goes to {first.name} in {left} if it has not started by then"
    return f"goes to {first.name} " + (f"as soon as possible: {first.unknown}" if first.unknown else "now")


def _is_like(task: Task, other: Task) -> bool:
    """Whether tasks need the same, as those of a sweep."""
    return task.owner == other.owner and _needs_of(task) == _needs_of(other)


def _needs_of(task: Task) -> TaskSpec:
    return replace(task.spec, command=(), parameters={}, name=None, job=None)
