"""What follows for the tasks that wait for another one when that one ends."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.tasks.event import GaveUp, Queued
from agentless.model.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Blocked:
    """A task that may not go into the queue before these tasks, by their ids, have completed."""

    on: tuple[str, ...]


def after_end(blocked: Blocked, ended: Task, again: Task | None = None) -> Blocked | Queued | GaveUp:
    """What follows when `ended` has come to its end: still blocked, into the queue, or cancelled with the reason.

    `again` is the next try of `ended`, if there is one: only the last try decides.
    """
    if ended.id not in blocked.on:
        return blocked
    if again is not None:
        return Blocked(tuple(again.id if each == ended.id else each for each in blocked.on))
    if ended.state != "completed":
        return GaveUp(f"depends on task {ended.id}, which did not complete ({ended.state})")
    left = tuple(each for each in blocked.on if each != ended.id)
    return Blocked(left) if left else Queued()
