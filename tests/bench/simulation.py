"""A cluster with a virtual clock: jobs arrive, a scheduler starts them, they end. No controller, no nodes, no waiting.

The scheduler of agentless is the controller's own: `survey` makes the cluster out of tasks and observations, `order`
sorts the queue, `plan` decides, with the plan before. What a controller adds is the time that a start takes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentless.controller.scheduling.queue import POLICIES
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Running, Task
from agentless.model.tasks.terms import Terms
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from tests.bench.workload import Job

_BEGIN = 1.8e9


@dataclass(frozen=True, slots=True)
class Ran:
    """A job and when it began, in seconds after the first moment."""

    job: Job
    began: float

    @property
    def waited(self) -> float:
        return self.began - self.job.arrives

    @property
    def ended(self) -> float:
        return self.began + self.job.takes


class Fifo:
    """First come, first served, on the first nodes with enough free GPUs: who does not fit holds up the rest.

    `nodes` are the numbers of their GPUs.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._free = list(nodes)
        self._where: dict[int, list[int]] = {}

    def starts(self, now: float, waiting: Sequence[Job]) -> list[Job]:  # noqa: ARG002 - it does not look ahead
        begun = []
        for job in waiting:
            fits = [node for node, free in enumerate(self._free) if free >= job.per_node][: job.nodes]
            if len(fits) < job.nodes:
                break
            for node in fits:
                self._free[node] -= job.per_node
            self._where[job.number] = fits
            begun.append(job)
        return begun

    def ended(self, job: Job) -> None:
        for node in self._where.pop(job.number):
            self._free[node] += job.per_node


class Agentless:
    """The queue of the controller. `limits` false: nobody says how long a job takes."""

    def __init__(self, nodes: Sequence[int], *, policy: str = "pack", limits: bool = True) -> None:
        self._policies = {None: POLICIES[policy], **POLICIES}
        gpus = {f"node{number}": count for number, count in enumerate(nodes, 1)}
        self._nodes = {name: NodeConfig(name, name) for name in gpus}
        self._seen = {name: _observation(name, count) for name, count in gpus.items()}
        self._limits = limits
        self._plan = Plan()
        self._tasks: dict[str, Task] = {}

    def starts(self, now: float, waiting: Sequence[Job]) -> list[Job]:
        now += _BEGIN
        cluster = survey(self._nodes, self._seen, self._tasks.values(), now)
        queue = order(task for job in waiting for task in self._tasks_of(job))
        self._plan = plan(cluster, queue, now, self._policies, self._plan)
        tasks = {task.id: task for task in queue}
        for key, placement in self._plan.starts.items():
            self._tasks[key] = replace(tasks[key], status=Running(placement, "c", now))
        return [job for job in waiting if _ids(job)[0] in self._plan.starts]

    def ended(self, job: Job) -> None:
        for key in _ids(job):
            del self._tasks[key]

    def _tasks_of(self, job: Job) -> list[Task]:
        terms = Terms(time_limit=job.limit if self._limits else None)
        spec, ids = TaskSpec(("x",), needs=Needs(gpus=job.per_node), terms=terms), _ids(job)
        specs = [spec] if job.nodes == 1 else [replace(spec, gang=each) for each in _gang(ids)]
        return [Task(key, each, "b", "me", _BEGIN + job.arrives) for key, each in zip(ids, specs, strict=True)]


def run(jobs: Sequence[Job], scheduler: Fifo | Agentless) -> list[Ran]:
    """All of them to their end. The scheduler is asked whenever a job has come or ended."""
    arriving = iter(jobs)
    coming = next(arriving, None)
    waiting: list[Job] = []
    ends: list[tuple[float, int, Job]] = []
    ran: list[Ran] = []
    while coming or ends:
        now = min(ends[0][0] if ends else float("inf"), coming.arrives if coming else float("inf"))
        while ends and ends[0][0] <= now:
            scheduler.ended(heapq.heappop(ends)[2])
        while coming and coming.arrives <= now:
            waiting.append(coming)
            coming = next(arriving, None)
        begun = scheduler.starts(now, waiting) if waiting else []
        for job in begun:
            heapq.heappush(ends, (now + job.takes, job.number, job))
            ran.append(Ran(job, now))
        gone = {job.number for job in begun}
        waiting = [job for job in waiting if job.number not in gone]
    if len(ran) < len(jobs):
        raise AssertionError(f"{len(jobs) - len(ran)} jobs were never started")
    return ran


def _observation(node: str, gpus: int) -> Observation:
    readings = tuple(
        GpuReading(index, f"{node}-{index}", "NVIDIA A100-SXM4-80GB", memory_total_mib=81920, memory_used_mib=0)
        for index in range(gpus)
    )
    return Observation(None, GpuSample(readings), host=HostFacts(64, 512 * 1024), engine=EngineFacts(containers=()))


def _ids(job: Job) -> list[str]:
    """Of a task for each of its nodes."""
    return [f"{job.number:08d}m{rank}" for rank in range(job.nodes)]


def _gang(ids: Sequence[str]) -> list[Any]:
    from agentless.model.tasks.gang import Gang  # `sending.GANGS` says whether this version has them

    return [Gang(len(ids), rank, tuple(ids)) for rank in range(len(ids))]
