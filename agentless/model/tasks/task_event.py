"""What can happen to a task. `rules/tasks/lifecycle` says what each event makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.tasks.task import Placement, Rank, StopKind


@dataclass(frozen=True, slots=True)
class Delayed:
    """It does not go into the queue before `until` (Unix seconds); `reason` as in `task.Scheduled`."""

    until: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits for its place."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """The node has refused it for certain: it waits again.

    `at_once`: what was in the way is known by now, so there is nothing to wait for before it is given another place.
    `unfit` is a node that can never start it, and is left out from now on.
    """

    reason: str
    at_once: bool = False
    unfit: str | None = None


@dataclass(frozen=True, slots=True)
class GaveUp:
    """It has waited for as long as it was to wait."""

    reason: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Somebody gave it another place in the queue."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Assigned:
    """A node and GPUs were chosen; from now on they are held."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class Step:
    """The launch has come to something that takes time, like pulling an image."""

    text: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The container was started, or found to have been."""

    container: str


@dataclass(frozen=True, slots=True)
class Dated:
    """The engine says when it started the container: `run` by its own clock, `started_at` by ours."""

    run: float
    started_at: float


@dataclass(frozen=True, slots=True)
class Restarted:
    """Somebody started the container again, by hand. Times as in `Dated`."""

    run: float
    started_at: float


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """It is known that no container of this task runs, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """It is to end. `grace` is seconds between the gentle signal and SIGKILL, None: as submitted.

    `reason` is what its end will say, None when a person wanted it.
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
    """The container ended. `seconds` is how long it ran by the engine's own clock, None when it does not say."""

    exit_code: int | None
    oom_killed: bool = False
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Vanished:
    """Its container is gone without a trace."""

    reason: str


@dataclass(frozen=True, slots=True)
class LostContact:
    """Its node has not answered past the grace time."""

    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A container carried it that nobody here remembered."""


TaskEvent = (
    Delayed
    | Queued
    | Unplaced
    | GaveUp
    | Moved
    | Assigned
    | Step
    | Launched
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
