"""A task and the states of its life. Each state has only the fields that are valid in it.

`pending → assigning → running ⇄ paused → completed | failed | killed | killed_oom | timeout | stopped`,
`scheduled → pending`, and `scheduled | pending → cancelled`; any live state `→ lost` and back. How it moves is
`rules/tasks/lifecycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agentless.model.nodes.device import Device
from agentless.model.tasks.spec import TaskSpec

Outcome = Literal["completed", "failed", "killed", "killed_oom", "timeout", "stopped", "cancelled"]
StopKind = Literal["stop", "kill", "timeout"]

FAILED: tuple[Outcome, ...] = ("failed", "killed_oom", "timeout")
"""The endings of which somebody may want another try."""


def outcome_of(exit_code: int | None, *, oom_killed: bool) -> Outcome:
    """The word for the end of a process that nobody has stopped.

    Out of memory is what the engine reports, never guessed from 137. It reports that also when the kernel ended a child
    and the process itself went on to a good end.
    """
    if exit_code == 0:
        return "completed"
    return "killed_oom" if oom_killed else "failed"


def container_name(task_id: str) -> str:
    """What the container of a task is called when it is launched; somebody may rename it."""
    return f"agentless-{task_id}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a task runs: the allocation. `gpus` are the indices at placing time, `gpu_uuids` what is really held.

    `gpu_total` is bytes of memory of the smallest of them, for one that shares them; 0: not known. `vendor` is whose
    they are, None where nobody has said that.
    """

    node: str
    gpus: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    cpus: str | None = None
    numa: int | None = None
    gpu_total: int = 0
    vendor: str | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """What it is given."""
        return tuple(Device(uuid, vendor=self.vendor or "") for uuid in self.gpu_uuids)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The ids of devices that its claim on the node names."""
        return tuple(dict.fromkeys(each for device in self.devices for each in device.claimed))

    def __str__(self) -> str:
        """As it would be typed: `node1::0,1`."""
        return self.node + ("::" + ",".join(map(str, self.gpus)) if self.gpus else "")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Not in the queue before `until` (Unix seconds). `reason` is why, when nobody has asked for that."""

    until: float
    reason: str = ""
    state: Literal["scheduled"] = "scheduled"


@dataclass(frozen=True, slots=True)
class Pending:
    """Not placed yet. `reason` is why a node refused it last, and `since` when (Unix seconds)."""

    reason: str = ""
    since: float | None = None
    state: Literal["pending"] = "pending"


@dataclass(frozen=True, slots=True)
class Assigning:
    """Its GPUs are held and its launch is on the way; `step` says what is being done, like pulling the image."""

    placement: Placement
    since: float
    step: str = ""
    state: Literal["assigning"] = "assigning"


@dataclass(frozen=True, slots=True)
class Running:
    """Its container runs. `run` is when the engine started it, by the engine's own clock: it names this run of it."""

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
    """Its node has not answered for too long. GPUs stay held, for nothing says that the container is gone."""

    placement: Placement
    since: float
    reason: str
    container: str | None = None
    started_at: float | None = None
    run: float | None = None
    state: Literal["lost"] = "lost"


@dataclass(frozen=True, slots=True)
class Ended:
    """Over, unless its container lives again. `exit_code` is the container's own, None when there was none to read."""

    state: Outcome
    ended_at: float
    exit_code: int | None = None
    reason: str | None = None
    placement: Placement | None = None
    container: str | None = None
    started_at: float | None = None
    run: float | None = None


Status = Scheduled | Pending | Assigning | Running | Paused | Lost | Ended


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in the queue that was given by hand: next after these tasks, as long as one of them waits.

    Who has the highest `turn` was moved last.
    """

    behind: tuple[str, ...]
    turn: int


@dataclass(frozen=True, slots=True)
class Task:
    """One command, and what has become of it. `created_at` is Unix seconds by the controller's clock.

    `queued_at` is when its time in the queue began, if that was not at once.
    `stop` is what was asked, `grace` the seconds between SIGTERM and SIGKILL that were asked with it, and `stop_reason`
    what its end will say of it, None when a person asked. `rank` is its place in the queue if it was given by hand.
    `signed` is whether its last launch writes a signature, which the launches of early versions did not.
    `request` names the request that submitted it, if its client gave it a name.
    """

    id: str
    spec: TaskSpec
    batch: str
    owner: str
    created_at: float
    status: Status = Pending()
    stop: StopKind | None = None
    grace: float | None = None
    rank: Rank | None = None
    stop_reason: str | None = None
    queued_at: float | None = None
    signed: bool = False
    request: str | None = None

    @property
    def state(self) -> str:
        """The state's word."""
        return self.status.state

    @property
    def live(self) -> bool:
        """Whether it can still change by itself."""
        return not isinstance(self.status, Ended)

    @property
    def placement(self) -> Placement | None:
        """Where it is or was, None if it never was anywhere."""
        return None if isinstance(self.status, (Scheduled, Pending)) else self.status.placement

    @property
    def node(self) -> str | None:
        """The node where it is or was, else the only one that will do; None as long as it may go anywhere."""
        return self.placement.node if self.placement else self.spec.needs.node

    @property
    def container_name(self) -> str:
        """The same on every try: the engine itself then refuses to start a task twice."""
        return container_name(self.id)

    @property
    def container(self) -> str | None:
        """The id of its container, None as long as none is known."""
        return None if isinstance(self.status, (Scheduled, Pending, Assigning)) else self.status.container

    @property
    def attempt(self) -> int:
        """Which try of its command it is, from 1 on."""
        return int(self.id.partition("-")[2] or 1)

    def afresh(self, status: Status) -> Task:
        """The task in this state, without all that was asked of it while it waited and ran."""
        return replace(self, status=status, stop=None, grace=None, rank=None, stop_reason=None, queued_at=None)

    @property
    def container_ref(self) -> str:
        """What to call its container by: a container may be renamed, its id stays."""
        return self.container or self.container_name
