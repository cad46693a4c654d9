"""Events of a task. `rules/tasks/lifecycle` applies them."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.scheduling.overflow import Refusal
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Ended, KeptPlace, Outcome, Placement, Rank, StopKind
from agentless.model.tasks.terms import Terms


@dataclass(frozen=True, slots=True)
class Delayed:
    """It enters the queue at `until` (Unix seconds). `reason` as in `task.Scheduled`."""

    until: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """It waits for other tasks. `on` and `reason` as in `task.Blocked`."""

    on: tuple[Requirement, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequirementMet:
    """A part of what it waits for is as required; `on` is the rest."""

    on: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Queued:
    """It entered the queue."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The node has certainly refused it. It returns to the queue.

    `at_once`: the obstacle is known now, so it may be placed again without a pause. `unfit` is a node that can never
    run it, and is excluded from now on.
    """

    reason: str
    at_once: bool = False
    unfit: str | None = None


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Its time to wait in the queue is over, or what it waits for has become impossible."""

    reason: str


@dataclass(frozen=True, slots=True)
class Moved:
    """It was moved in the queue."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Assigned:
    """A node and GPUs were allocated to it."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class Met:
    """The members of its gang know how they reach each other."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class Preempts:
    """Other tasks are to give way for it, and their place is kept for it."""

    place: KeptPlace


@dataclass(frozen=True, slots=True)
class PlaceLost:
    """Its place did not become free in time. It waits like any other task."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandedOver:
    """It does not wait for nodes any more: it becomes a job of this cluster, with GPUs of what are its types."""

    cluster: str
    gpu_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandedBack:
    """That cluster has refused its job: it waits for nodes again."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Step:
    """The launch has reached a step that takes time, like pulling an image."""

    text: str


@dataclass(frozen=True, slots=True)
class JobQueued:
    """It is in the queue of its cluster, as the job `container`; the other fields are as in `task.Submitted`."""

    container: str
    reason: str = ""
    expected: float | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """Its container was started, or found running."""

    container: str


@dataclass(frozen=True, slots=True)
class Dated:
    """The engine reported the start of the container: `run` by its clock, `started_at` by ours.

    `compute_nodes` as in `task.Placement`.
    """

    run: float
    started_at: float
    compute_nodes: str = ""


@dataclass(frozen=True, slots=True)
class Restarted:
    """The container was started again by hand. The fields are as in `Dated`."""

    run: float
    started_at: float
    compute_nodes: str = ""


@dataclass(frozen=True, slots=True)
class StartAsked:
    """Its container, which has ended, is to be started again; from now on its GPUs are held."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """That was refused, and it is as it `was`."""

    was: Ended
    reason: str


@dataclass(frozen=True, slots=True)
class Resized:
    """Its container has other limits: cores and bytes of memory."""

    cores: float | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """It has other terms."""

    terms: Terms


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The launch has failed, and certainly no container runs. `outcome` is what the task is then."""

    reason: str
    outcome: Outcome = "failed"


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A stop was requested. `grace` are the seconds between the first signal and SIGKILL, None for those of the spec.

    `reason` is the reason of its end, None if a person asked.
    """

    how: StopKind
    grace: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Froze:
    """The container was paused."""


@dataclass(frozen=True, slots=True)
class Thawed:
    """The container runs again."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The container ended. `seconds` is how long it ran by the engine's clock, None if unknown.

    `outcome` is what a cluster calls its end, None for what its exit code means.
    """

    exit_code: int | None
    oom_killed: bool = False
    seconds: float | None = None
    error: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Vanished:
    """Its container does not exist any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class LostContact:
    """Its node did not answer within the grace time, or its engine does not show the container any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """An unknown task was found in the labels of a container."""


TaskEvent = (
    BlockedBy
    | RequirementMet
    | Delayed
    | Queued
    | Unplaced
    | GaveUp
    | Moved
    | Assigned
    | Met
    | Preempts
    | PlaceLost
    | HandedOver
    | HandedBack
    | Step
    | JobQueued
    | Launched
    | StartAsked
    | NotStarted
    | Resized
    | TermsChanged
    | LaunchFailed
    | Dated
    | Restarted
    | StopAsked
    | Froze
    | Thawed
    | Exited
    | Vanished
    | LostContact
    | Adopted
)
