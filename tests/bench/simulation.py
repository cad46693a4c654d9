"""A cluster with a virtual clock: jobs arrive, a scheduler starts them, they end. No controller, no nodes, no waiting.

The scheduler of agentless is the controller's own: `survey` makes the cluster out of tasks and observations, `order`
sorts the queue, `plan` decides, with the plan before, and `lifecycle` says what becomes of whoever gives way. What a
controller adds is the time that a start takes, and that of an end on SIGTERM.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentless.controller.scheduling.queue import POLICIES
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Pending, Placement, Task
from agentless.model.tasks.task_event import Assigned, Exited, Launched, Preempts, StopAsked, TaskEvent
from agentless.model.tasks.terms import Terms
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.retry import another_try
from tests.bench.workload import Job

_BEGIN = 1.8e9


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a job: when it began, in seconds after the first moment, and when it gave way to another one, if so."""

    job: Job
    began: float
    gave_way: float | None = None

    @property
    def waited(self) -> float:
        return self.began - self.job.arrives

    @property
    def ended(self) -> float:
        return self.began + self.job.takes if self.gave_way is None else self.gave_way


Turn = tuple[list[Job], list[Job]]
"""Who begins, and who gave way before that. Who gives way ends at once, and waits again."""


class Fifo:
    """First come, first served, on the first nodes with enough free GPUs: who does not fit holds up the rest.

    `nodes` are the numbers of their GPUs.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._free = list(nodes)
        self._where: dict[int, list[int]] = {}

    def turn(self, now: float, waiting: Sequence[Job]) -> Turn:  # noqa: ARG002 - it does not look ahead
        begun = []
        for job in waiting:
            fits = [node for node, free in enumerate(self._free) if free >= job.per_node][: job.nodes]
            if len(fits) < job.nodes:
                break
            for node in fits:
                self._free[node] -= job.per_node
            self._where[job.number] = fits
            begun.append(job)
        return begun, []

    def ended(self, job: Job) -> None:
        for node in self._where.pop(job.number):
            self._free[node] += job.per_node


class Agentless:
    """The queue of the controller. `limits` false: nobody says how long a job takes."""

    def __init__(self, nodes: Sequence[int], *, policy: str = "pack", limits: bool = True) -> None:
        self._policies = {name: POLICIES[name or policy] for name in (None, *POLICIES)}
        gpus = {f"node{number}": count for number, count in enumerate(nodes, 1)}
        self._nodes = {name: NodeConfig(name, name) for name in gpus}
        self._seen = {name: _observation(name, count) for name, count in gpus.items()}
        self._limits = limits
        self._plan = Plan()
        self._tasks: dict[str, Task] = {}
        self._jobs: dict[str, Job] = {}

    def turn(self, now: float, waiting: Sequence[Job]) -> Turn:
        """Look again after somebody gave way, until nobody does."""
        now += _BEGIN
        for job in waiting:
            if _ids(job)[0] not in self._jobs:
                self._enter(job)
        begun, gone = dict[int, Job](), list[Job]()
        while True:
            for key, placement in self._look(now).items():
                self._apply(key, Assigned(placement), now)
                self._apply(key, Launched("c"), now)
                begun[self._jobs[key].number] = self._jobs[key]
            victims = [victim for place in self._plan.places.values() for victim in place.victims]
            for key, place in self._plan.places.items():
                self._apply(key, Preempts(place), now)
            for victim in victims:
                job = self._give_way(victim, now)
                if begun.pop(job.number, None) is None:
                    gone.append(job)
            if not victims:
                return list(begun.values()), gone

    def ended(self, job: Job) -> None:
        for key in [key for key in self._tasks if self._jobs[key] is job]:
            del self._tasks[key]

    # ------------------------------------------------------------------ inside

    def _look(self, now: float) -> Mapping[str, Placement]:
        cluster = survey(self._nodes, self._seen, self._tasks.values(), now)
        queue = order(task for task in self._tasks.values() if isinstance(task.status, Pending))
        self._plan = plan(cluster, queue, now, self._policies, self._plan)
        return self._plan.starts

    def _apply(self, key: str, event: TaskEvent, now: float) -> None:
        self._tasks[key] = apply(self._tasks[key], event, now)

    def _enter(self, job: Job) -> None:
        terms = Terms(time_limit=job.limit if self._limits else None, preemptible=job.preemptible)
        spec, ids = TaskSpec(("x",), needs=Needs(gpus=job.per_node), terms=terms), _ids(job)
        for rank, key in enumerate(ids):
            gang = Gang(job.nodes, rank, tuple(ids), alike=job.nodes) if job.nodes > 1 else None
            self._tasks[key] = Task(key, replace(spec, gang=gang), "b", "me", _BEGIN + job.arrives)
            self._jobs[key] = job

    def _give_way(self, key: str, now: float) -> Job:
        """SIGTERM ends it; the next try waits."""
        self._apply(key, StopAsked("preempt"), now)
        before = self._tasks.pop(key)
        new = another_try(before, apply(before, Exited(143), now), now)
        assert new is not None
        self._tasks[new[0].id], self._jobs[new[0].id] = new[0], self._jobs[key]
        return self._jobs[key]


def run(jobs: Sequence[Job], scheduler: Fifo | Agentless) -> list[Ran]:
    """All of them to their end. The scheduler is asked whenever a job has come or ended."""
    arriving = iter(jobs)
    coming = next(arriving, None)
    waiting: list[Job] = []
    ends: list[tuple[float, int]] = []
    running: dict[int, Ran] = {}
    ran: list[Ran] = []
    while coming or ends:
        now = min(ends[0][0] if ends else float("inf"), coming.arrives if coming else float("inf"))
        while ends and ends[0][0] <= now:
            ended, number = heapq.heappop(ends)
            if number in running and running[number].ended == ended:  # else it gave way
                ran.append(running.pop(number))
                scheduler.ended(ran[-1].job)
        while coming and coming.arrives <= now:
            waiting.append(coming)
            coming = next(arriving, None)
        begun, gone = scheduler.turn(now, waiting) if waiting else ([], [])
        ran += [replace(running.pop(job.number), gave_way=now) for job in gone]
        waiting += gone
        for job in begun:
            running[job.number] = Ran(job, now)
            heapq.heappush(ends, (running[job.number].ended, job.number))
        waiting = [job for job in waiting if job.number not in running]
    if waiting:
        raise AssertionError(f"{len(waiting)} jobs were never started")
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
