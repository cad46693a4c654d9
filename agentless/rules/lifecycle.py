"""The life of a task: `apply` is the only way from one state to the next."""

from __future__ import annotations

from dataclasses import replace

from agentless.errors import IllegalMove
from agentless.model.event import (
    Assigned,
    Event,
    Exited,
    Froze,
    Launched,
    LaunchFailed,
    LostContact,
    Step,
    StopAsked,
    Thawed,
    Vanished,
)
from agentless.model.task import Assigning, Ended, Lost, Outcome, Paused, Pending, Running, Task


def apply(task: Task, event: Event, now: float) -> Task:
    """The task after `event` at `now` (Unix seconds, controller clock); raises IllegalMove, never guesses."""
    match task.status, event:
        case Ended(), _:
            raise IllegalMove(f"task {task.id} has ended ({task.state})")
        case Pending(), StopAsked(how=how):
            return replace(task, stop=how, status=Ended("cancelled", now, reason="stopped before it started"))
        case _, StopAsked(how=how):
            return replace(task, stop=how)
        case Pending(), Assigned(placement=placement):
            return replace(task, status=Assigning(placement, now))
        case Pending(), LaunchFailed(reason=reason):
            return replace(task, status=Ended("failed", now, reason=reason))
        case Assigning() as status, Step(text=text):
            return replace(task, status=replace(status, step=text))
        case (Assigning() | Lost()) as status, Launched(container=container):
            began = (status.started_at if isinstance(status, Lost) else None) or now
            return replace(task, status=Running(status.placement, container, began))
        case (Assigning() | Lost(container=None)) as status, LaunchFailed(reason=reason):
            outcome: Outcome = "cancelled" if task.stop else "failed"
            return replace(task, status=Ended(outcome, now, reason=reason, placement=status.placement))
        case Running() as status, Froze():
            return replace(task, status=Paused(status.placement, status.container, status.started_at))
        case Paused() as status, Thawed():
            return replace(task, status=Running(status.placement, status.container, status.started_at))
        case (Running() | Paused() | Lost()) as status, Exited() as exited:
            return replace(task, status=_ended(task, status, exited, now))
        case (Running() | Paused() | Lost()) as status, Vanished(reason=reason):
            return replace(
                task,
                status=Ended(
                    "killed" if task.stop else "failed",
                    now,
                    reason=reason,
                    placement=status.placement,
                    container=status.container,
                    started_at=status.started_at,
                ),
            )
        case Assigning(placement=placement), LostContact(reason=reason):
            return replace(task, status=Lost(placement, now, reason))
        case (Running() | Paused()) as status, LostContact(reason=reason):
            lost = Lost(status.placement, now, reason, status.container, status.started_at)
            return replace(task, status=lost)
        case _:
            raise IllegalMove(f"task {task.id} is {task.state}: {type(event).__name__} cannot happen to it")


def _ended(task: Task, status: Running | Paused | Lost, exited: Exited, now: float) -> Ended:
    # The node's clock may be hours off: its durations are used, its dates are not. A start that was noticed late is
    # moved back, so that the duration stays what the engine measured.
    began, ended = status.started_at, now
    if began is not None and exited.seconds is not None:
        began = max(task.created_at, min(began, now - exited.seconds))
        ended = min(now, began + exited.seconds)
    word = outcome(task, exited)
    return Ended(
        word,
        ended,
        exit_code=exited.exit_code,
        reason=exited.error or ("out of memory: the kernel ended it" if word == "killed_oom" else None),
        placement=status.placement,
        container=status.container,
        started_at=began,
    )


def outcome(task: Task, exited: Exited) -> Outcome:
    """The word for an ending. Out of memory is what the engine reports, never guessed from 137.

    The engine reports it also when the kernel ended a child process and the task went on to a good end of its own.
    """
    if exited.oom_killed and exited.exit_code != 0:
        return "killed_oom"
    if task.stop:
        return "killed" if task.stop == "kill" else "stopped"
    return "completed" if exited.exit_code == 0 else "failed"
