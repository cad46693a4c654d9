"""What the node says of a task against what the controller remembers: the events that make them agree."""

from __future__ import annotations

from agentless.model.container import Container
from agentless.model.event import Event, Exited, Froze, Launched, LaunchFailed, Thawed, Vanished
from agentless.model.task import Assigning, Ended, Lost, Paused, Pending, Running, Task

LAUNCH_BOUND = 150.0
"""Seconds after which a launch script has ended on its node, whatever became of its controller and the link."""


def reconcile(task: Task, container: Container | None, now: float) -> tuple[Event, ...]:
    """The events that bring `task` to what `container` says; none when they agree.

    `container` is None when the node was asked and has no container of that name. Nothing follows from that for a
    task whose launch has not been answered: launching it again is safe, and says what became of it.
    """
    status = task.status
    if isinstance(status, (Pending, Ended)):
        return ()
    if container is None:
        return _missing(task, now)
    events: list[Event] = []
    if container.state == "created":
        return ()
    if isinstance(status, (Assigning, Lost)):
        events.append(Launched(container.id))
    if container.state in ("exited", "dead"):
        events.append(ending(container))
    elif container.state == "paused" and not isinstance(status, Paused):
        events.append(Froze())
    elif container.state == "running" and isinstance(status, Paused):
        events.append(Thawed())
    return tuple(events)


def ending(container: Container) -> Exited:
    """The ending that an ended container reports."""
    ran = None
    if container.started_at is not None and container.finished_at is not None:
        ran = max(0.0, container.finished_at - container.started_at)
    return Exited(container.exit_code, container.oom_killed, ran, container.error)


def _missing(task: Task, now: float) -> tuple[Event, ...]:
    status = task.status
    if isinstance(status, (Running, Paused, Lost)) and status.container is not None:
        return (Vanished("its container was removed on the node by somebody else"),)
    if task.stop and isinstance(status, (Assigning, Lost)) and now - status.since > LAUNCH_BOUND:
        return (LaunchFailed("stopped before it started"),)
    return ()
