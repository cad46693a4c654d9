"""A task and the states of its life. Each state has only the fields that are valid in it.

`pending → assigning → running ⇄ paused → completed | failed | killed | killed_oom | timeout | stopped | preempted`,
`blocked → scheduled → pending`, and `blocked | scheduled | pending → cancelled`; any live state `→ lost` and back. On a
cluster with a queue of its own it is `assigning → submitted ⇄ running`.
Transitions are in `rules/tasks/lifecycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, get_args

from agentless.model.nodes.device import Device, GpuNumber
from agentless.model.scheduling.overflow import AskedOfNodes, Refusal
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task_id import attempt_of, first_try

Outcome = Literal["completed", "failed", "killed", "killed_oom", "timeout", "stopped", "cancelled", "preempted"]
StopKind = Literal["stop", "kill", "timeout", "preempt"]

FAILED: tuple[Outcome, ...] = ("failed", "killed_oom", "timeout")
"""The failed outcomes."""
LIVE = ("blocked", "scheduled", "pending", "assigning", "submitted", "running", "paused", "lost")
"""The states of a task that has not ended."""
STATES: tuple[str, ...] = (*LIVE, *get_args(Outcome))


def outcome_of(exit_code: int | None, *, oom_killed: bool) -> Outcome:
    """The outcome of a process that was not stopped.

    Out of memory is reported by the engine, never guessed from exit code 137. The engine reports it also if the kernel
    killed a child and the process itself succeeded.
    """
    if exit_code == 0:
        return "completed"
    return "killed_oom" if oom_killed else "failed"


def container_name(task_id: str) -> str:
    """The name of a task's container at its launch. A user may rename it."""
    return f"agentless-{task_id}"


@dataclass(frozen=True, slots=True)
class Placement:
    """The allocation of a task. `gpus` are the numbers at placing time, `gpu_uuids` the devices that are held.

    `gpu_total` is the memory of the smallest GPU in bytes, if the task shares them; 0 if unknown. `vendor` is None if
    unknown. `parents` has for each device the UUID of the GPU that it is a part of, empty for a whole GPU; without any
    parts it is empty itself.

    `after` are the jobs that its cluster waits for before it starts the task: `afterok:4711`. `compute_nodes` are those
    on which the cluster runs it, as the cluster writes them: `c[1-2]`; empty if unknown.
    """

    node: str
    gpus: tuple[GpuNumber, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    cpus: str | None = None
    numa: int | None = None
    gpu_total: int = 0
    vendor: str | None = None
    parents: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    compute_nodes: str = ""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of the task."""
        of = zip_longest(self.gpu_uuids, self.parents[: len(self.gpu_uuids)], fillvalue="")
        vendor = self.vendor or ""
        return tuple(Device(uuid, "slice" if gpu else "gpu", gpu or None, vendor) for uuid, gpu in of)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The words for its devices in its claim on the node."""
        return tuple(dict.fromkeys(each for device in self.devices for each in device.claimed))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words for exactly its devices: what its launch asks for."""
        return tuple(device.token for device in self.devices)

    def __str__(self) -> str:
        """As a target: `node1::0,1`."""
        return self.node + ("::" + ",".join(map(str, self.gpus)) if self.gpus else "")


@dataclass(frozen=True, slots=True)
class Blocked:
    """It waits for these tasks; those that are as required already are left out.

    `reason` is why that has become impossible, if it was told to wait all the same.
    """

    on: tuple[Requirement, ...]
    reason: str = ""
    state: Literal["blocked"] = "blocked"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Not in the queue before `until` (Unix seconds). `reason` is why, unless the user asked for it."""

    until: float
    reason: str = ""
    state: Literal["scheduled"] = "scheduled"


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A place that a pending task waits for, and nobody else gets: its `victims`, by id, give way there.

    They are gone `until` then at the latest (Unix seconds), if nothing goes wrong.
    """

    node: str
    gpu_uuids: tuple[str, ...]
    victims: tuple[str, ...]
    until: float


@dataclass(frozen=True, slots=True)
class Pending:
    """In the queue. `reason` is the latest refusal of a node, `since` its time (Unix seconds).

    `place` is kept for it while others give way.
    """

    reason: str = ""
    since: float | None = None
    place: KeptPlace | None = None
    state: Literal["pending"] = "pending"


@dataclass(frozen=True, slots=True)
class Assigning:
    """Its GPUs are held and its launch is under way. `step` is the current step, like pulling the image."""

    placement: Placement
    since: float
    step: str = ""
    state: Literal["assigning"] = "assigning"


@dataclass(frozen=True, slots=True)
class Submitted:
    """In the queue of its cluster, as the job `container`. `reason` is the cluster's, in words.

    `expected` is when the cluster expects to start it (Unix seconds), None if it does not say.
    """

    placement: Placement
    container: str
    since: float
    reason: str = ""
    expected: float | None = None
    state: Literal["submitted"] = "submitted"


@dataclass(frozen=True, slots=True)
class Running:
    """Its container runs. `run` is its start by the engine's clock, which identifies this run."""

    placement: Placement
    container: str
    started_at: float
    run: float | None = None
    state: Literal["running"] = "running"


@dataclass(frozen=True, slots=True)
class Paused:
    """Its container is frozen and keeps its GPUs."""

    placement: Placement
    container: str
    started_at: float
    run: float | None = None
    state: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True)
class Lost:
    """Its node has not answered for too long. Its GPUs stay held: the container may still run."""

    placement: Placement
    since: float
    reason: str
    container: str | None = None
    started_at: float | None = None
    run: float | None = None
    state: Literal["lost"] = "lost"


@dataclass(frozen=True, slots=True)
class Ended:
    """Ended. A container that is started again makes it live again. `exit_code` is the container's, None if unknown."""

    state: Outcome
    ended_at: float
    exit_code: int | None = None
    reason: str | None = None
    placement: Placement | None = None
    container: str | None = None
    started_at: float | None = None
    run: float | None = None


Waiting = Blocked | Scheduled | Pending
"""The states of a task that has no place yet."""

TaskStatus = Blocked | Scheduled | Pending | Assigning | Submitted | Running | Paused | Lost | Ended


@dataclass(frozen=True, slots=True)
class Rank:
    """A position in the queue that was set by hand: after these tasks, while one of them is pending.

    The task with the highest `turn` was moved last.
    """

    behind: tuple[str, ...]
    turn: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task with its state. `created_at` is Unix seconds by the controller's clock.

    `queued_at` is when it entered the queue, if that was later. `stop` is the requested kind of stop, `grace` the
    requested seconds between SIGTERM and SIGKILL, and `stop_reason` the reason of its end, None if a person asked.
    `rank` is its position in the queue if it was set by hand. `signed`: its latest launch writes a signature (launches
    of early versions did not). `request` is the name of the request that submitted it, if the client gave one.
    `victims` are the tasks that give or gave way for it: it preempts no others. `preemptions` of its tries were
    preempted, which costs it none of its retries. `before_overflow` is set while overflow has handed it over to a
    cluster; `refusals` are those of clusters from which it came back.
    """

    id: str
    spec: TaskSpec
    batch: str
    owner: str
    created_at: float
    status: TaskStatus = Pending()
    stop: StopKind | None = None
    grace: float | None = None
    rank: Rank | None = None
    stop_reason: str | None = None
    queued_at: float | None = None
    signed: bool = False
    request: str | None = None
    victims: tuple[str, ...] = ()
    preemptions: int = 0
    before_overflow: AskedOfNodes | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def state(self) -> str:
        """The name of the state."""
        return self.status.state

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return not isinstance(self.status, Ended)

    @property
    def placement(self) -> Placement | None:
        """Its current or last placement, None if it never had one."""
        return None if isinstance(self.status, Waiting) else self.status.placement

    @property
    def node(self) -> str | None:
        """Its current or last node, else the only allowed one. None if several are allowed."""
        return self.placement.node if self.placement else self.spec.needs.node

    @property
    def container_name(self) -> str:
        """The name of its container. It is the same in every launch, so the engine refuses to start a task twice."""
        return container_name(self.id)

    @property
    def container(self) -> str | None:
        """The id of its container, or None."""
        return None if isinstance(self.status, Waiting | Assigning) else self.status.container

    @property
    def attempt(self) -> int:
        """The number of this try, from 1 on."""
        return attempt_of(self.id)

    @property
    def waited_for_as(self) -> tuple[tuple[bool, str], tuple[bool, str]]:
        """The keys of requirements that this task is a part of. Of a gang, all members are waited for as the first."""
        return (False, self.lead), (True, self.batch)

    @property
    def lead(self) -> str:
        """The id of the first try of this task; of a gang's member, that of the first member."""
        return (self.spec.gang.id if self.spec.gang else "") or first_try(self.id)

    @property
    def tries(self) -> int:
        """How many of its tries count, this one included: all but those that were preempted."""
        return self.attempt - self.preemptions

    @property
    def kept_place(self) -> KeptPlace | None:
        """The place that is kept for it while others give way."""
        return self.status.place if isinstance(self.status, Pending) else None

    def afresh(self, status: TaskStatus) -> Task:
        """The task in this state, without requested stops and ranks."""
        fresh = replace(self, status=status, stop=None, grace=None, rank=None, stop_reason=None, queued_at=None)
        return replace(fresh, victims=())

    @property
    def container_ref(self) -> str:
        """The reference for engine commands: the id of its container if known, else its name."""
        return self.container or self.container_name
