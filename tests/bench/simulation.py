"""A cluster with a virtual clock: jobs arrive, a scheduler starts them, they end. No controller, no nodes, no waiting.

The scheduler of agentless is the controller's own: `survey` makes the cluster out of tasks and observations, `order`
sorts the queue, `plan` decides, with the plan before. What a controller adds is the time that a start takes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """First come, first served, on the first node with enough free GPUs: who does not fit holds up the rest.

    `nodes` are the numbers of their GPUs.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._free = list(nodes)
        self._where: dict[int, int] = {}

    def starts(self, now: float, waiting: Sequence[Job]) -> list[Job]:  # noqa: ARG002 - it does not look ahead
        begun = []
        for job in waiting:
            node = next((node for node, free in enumerate(self._free) if free >= job.gpus), None)
            if node is None:
                break
            self._free[node] -= job.gpus
            self._where[job.number] = node
            begun.append(job)
        return begun

    def ended(self, job: Job) -> None:
        self._free[self._where.pop(job.number)] += job.gpus


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
        queue = order(self._task(job) for job in waiting)
        self._plan = plan(cluster, queue, now, self._policies, self._plan)
        tasks = {task.id: task for task in queue}
        for key, placement in self._plan.starts.items():
            self._tasks[key] = replace(tasks[key], status=Running(placement, "c", now))
        return [job for job in waiting if _id(job) in self._plan.starts]

    def ended(self, job: Job) -> None:
        del self._tasks[_id(job)]

    def _task(self, job: Job) -> Task:
        spec = TaskSpec(("x",), needs=Needs(gpus=job.gpus), terms=Terms(time_limit=job.limit if self._limits else None))
        return Task(_id(job), spec, "b", "me", _BEGIN + job.arrives)


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


def _id(job: Job) -> str:
    return f"{job.number:08d}"
