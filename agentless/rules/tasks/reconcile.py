"""Compares a task with its container on the node. Returns the events that make them agree."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.model.containers.claim import named_task
from agentless.model.containers.container import DOWN, WENT_DOWN, Container
from agentless.model.containers.job_id import job_number
from agentless.model.containers.signature import SIGNATURE
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.tasks.task import Assigning, Ended, Lost, Paused, Running, Submitted, Task, TaskStatus, Waiting
from agentless.model.tasks.task_event import (
    Dated,
    Exited,
    Froze,
    JobQueued,
    Launched,
    LaunchFailed,
    LostContact,
    Restarted,
    StopAsked,
    TaskEvent,
    Thawed,
    Vanished,
)

LAUNCH_BOUND = 150.0
"""Seconds after which a launch script has certainly ended on its node."""

_FREE = "free its GPUs with: agentless rm --force {}"
HIDDEN = (
    "Docker on the node was switched to another image store, storage driver or data folder, where its container does "
    f"not show and may run; switch it back, or {_FREE}"
)
_ELSEWHERE = (
    "{} is another Slurm now (ClusterName {}, it was {}), and its job may run on the other one; correct host: in the "
    f"inventory, or {_FREE}"
)
_RENAMED = (
    "its job {} has another name and comment, so it may be another one; if it was only renamed, run on the cluster: "
    f"scontrol update jobid={{}} name={{}}; else {_FREE}"
)

_NO_RECORD = NodeRecord()

_STOPPED = "stopped before it started"
_UNSTARTED = "its job ended before it started"
_REMOVED = "its job was removed from the queue of its cluster, outside agentless"
SAME_START = 60.0
"""Seconds by which a cluster may move an expected start without an event."""
REAP_AFTER = 300.0
"""Seconds after which a container that was created and never started is removed. It claims its GPUs."""


def container_of(task: Task, containers: Iterable[Container]) -> Container | None:
    """The container of `task` among these.

    It is found by its id if that is known, else by a signed label, since a container may be renamed. `docker commit`
    and users may copy labels. Of several containers with them, the one with the name of the launch counts, else the
    oldest.
    """
    known = task.container
    if known is not None:
        return next((container for container in containers if container.id == known), None)
    claimed = [c for c in containers if named_task(c) == task.id and _is_ours(task, c)]
    return min(claimed, key=lambda c: (c.name != task.container_name, c.created_at or 0.0), default=None)


def _is_ours(task: Task, container: Container) -> bool:
    """Whether our launch wrote its labels, by their signature.

    An early version signed nothing. A container that it was launching when it was replaced is recognized by its name.
    """
    early = not task.signed and isinstance(task.status, (Assigning, Lost)) and SIGNATURE not in container.labels
    return container.signed or (early and container.name == task.container_name)


def reconcile(
    task: Task,
    container: Container | None,
    now: float,
    booted_at: float | None = None,
    record: NodeRecord = _NO_RECORD,
) -> tuple[TaskEvent, ...]:
    """The events that bring `task` to the state of `container`; none if they agree.

    `booted_at` is when its node was first seen after a reboot, or None. `record` knows where its engine kept containers
    before.

    `container` is None if the node was asked and has no container of the task. For a task whose launch was not answered
    nothing follows from that: it is safe to launch it again, and that shows its state.
    """
    status = task.status
    if isinstance(status, Waiting):
        return ()
    if container is not None and container.doubtful and not is_same_run(status, container):
        if isinstance(status, Ended):
            return ()
        if container.live and not is_elsewhere(task, record):
            return _doubted(task)
        container = None
    if isinstance(status, Ended) and not _is_revived(status, container):
        return ()
    if container is None:
        return _missing(task, now, booted_at, record)
    if container.state == "created":
        return _unstarted(task, now)
    if container.state == "queued":
        return _queued(task, container)
    if isinstance(status, (Assigning, Submitted, Lost)) and _never_ran(container):
        # One that has run before is in the queue again, and then it ends there.
        known = (JobQueued(container.id),) if isinstance(status, Lost) and status.started_at is not None else ()
        stopped = task.stop_reason or _STOPPED
        if container.outcome == "cancelled" and not task.stop:
            if status.placement.after:  # what it waited for is about to be seen to have ended, which says why
                return _queued(task, container)
            return (*known, StopAsked("stop", reason=container.error), LaunchFailed(container.error))
        why = stopped if task.stop else container.error or _UNSTARTED
        return (*known, LaunchFailed(why, "killed" if container.outcome == "killed" else "failed"))
    events: list[TaskEvent] = []
    paused, run = isinstance(status, Paused), None
    if isinstance(status, (Assigning, Submitted, Lost)) or (isinstance(status, Ended) and status.exit_code is None):
        events.append(Launched(container.id))
    if not isinstance(status, Assigning | Submitted):
        run = status.run
    if container.started_at is not None and container.started_at != run:
        began = container.started_at - container.clock
        if container.over:
            began = min(began, now - (container.ran or 0.0))  # the clock of the node may have changed since
        again = run is not None or (isinstance(status, Ended) and status.exit_code is not None)
        start = container.started_at, began, container.compute_nodes
        events.append(Restarted(*start) if again else Dated(*start))
        paused = paused and not again
    if container.over and task.spec.traits.ends_with_process:
        why = "" if task.stop and container.outcome else container.error  # it ended as it was asked to
        is_end = container.outcome == "preempted" and not task.spec.terms.preemptible  # it never agreed to that
        outcome = None if is_end else container.outcome
        ended = container.exit_code, container.oom_killed, container.ran, why, outcome
        events.append(Exited(*ended))
    elif container.state == "paused" and not paused:
        events.append(Froze())
    elif container.state == "running" and paused:
        events.append(Thawed())
    return tuple(events)


def _never_ran(container: Container) -> bool:
    """Whether a cluster has ended a job that it had not started."""
    return container.over and container.started_at is None and container.exit_code is None


def _queued(task: Task, job: Container) -> tuple[TaskEvent, ...]:
    """A job that its cluster has not started yet, or puts back into the queue.

    One that waits for what its task waits for has no reason of the cluster: the task knows more of it.
    """
    status, expected = task.status, job.here(job.expected_at)
    reason = "" if job.awaits and task.placement and task.placement.after else job.error
    event = JobQueued(job.id, reason, expected)
    if not isinstance(status, Submitted):
        return (event,)
    later = abs((status.expected or 0.0) - (expected or 0.0)) > SAME_START
    return (event,) if later or (status.container, status.reason) != (job.id, reason) else ()


def is_hidden(task: Task) -> bool:
    """Whether it is lost because its engine answers, and does not show for certain what runs it."""
    return isinstance(task.status, Lost) and task.status.reason.endswith(_FREE.format(task.id))


def is_elsewhere(task: Task, record: NodeRecord) -> bool:
    """Whether a task of a cluster went to another Slurm than the one that is there now."""
    status = task.status
    if isinstance(status, Assigning | Submitted):
        return record.hides(status.since)
    began = status.started_at if isinstance(status, Running | Paused | Lost) else None
    return record.hides(began or task.created_at)


def lost_elsewhere(task: Task, record: NodeRecord) -> tuple[TaskEvent, ...]:
    """What follows from that."""
    before = record.kept[-1].keeps if record.kept else "another one"
    return _lost(task, _ELSEWHERE.format(task.node, record.keeps, before, task.id))


def is_same_run(status: TaskStatus, job: Container) -> bool:
    """Whether a job began when that of the task did."""
    return isinstance(status, Running | Paused | Lost) and status.run is not None and status.run == job.started_at


def _doubted(task: Task) -> tuple[TaskEvent, ...]:
    job = job_number(task.container)
    return _lost(task, _RENAMED.format(job, job, task.container_name, task.id))


def _lost(task: Task, why: str) -> tuple[TaskEvent, ...]:
    is_told = isinstance(task.status, Lost) and (task.status.reason == why or task.container is None)
    return () if is_told else (LostContact(why),)


def is_forsaken(container: Container, now: float) -> bool:
    """Whether its launch died between create and start, so long ago that it will not be started any more."""
    created = container.here(container.created_at)
    return container.state == "created" and created is not None and now - created > REAP_AFTER


def _is_revived(status: Ended, container: Container | None) -> bool:
    """Whether an ended task has a running container again.

    A user started it by hand, or another machine had the address of the node for a while.
    """
    if container is None or container.state == "created" or status.placement is None:
        return False
    if status.container is None:
        return container.signed and not _never_ran(container)
    if container.id != status.container:
        return False
    if container.state == "queued":
        return True
    if container.over and job_number(container.id) and status.state in ("timeout", "killed"):
        return False  # once its cluster forgets it, only what its script wrote is left: that does not know who ended it
    if status.exit_code is None and (container.live or container.exit_code is not None):
        return True
    return container.live and container.started_at not in (None, status.run)


def _missing(task: Task, now: float, booted_at: float | None, record: NodeRecord) -> tuple[TaskEvent, ...]:
    status = task.status
    if job_number(task.container) and is_elsewhere(task, record):
        return lost_elsewhere(task, record)
    waited = isinstance(status, Lost) and status.started_at is None and job_number(status.container)
    if isinstance(status, Submitted) or waited:
        return (LaunchFailed((task.stop_reason or _STOPPED) if task.stop else _REMOVED, "killed"),)
    if isinstance(status, (Running, Paused, Lost)) and status.container is not None:
        began = status.started_at or task.created_at
        if job_number(status.container):
            return (Vanished("its job is gone from the cluster, and has left no exit code"),)
        if not task.spec.on_node_itself:
            if record.hides(began):
                return _lost(task, HIDDEN.format(task.id))
            return (Vanished("its container was removed on the node, outside agentless"),)
        # systemd forgets its services with a reboot.
        if booted_at is not None and began < booted_at:
            return (Exited(DOWN, error=WENT_DOWN),)
        return (Vanished("its service ended: stopped on the node outside agentless, or the node went down"),)
    return _unstarted(task, now)


def _unstarted(task: Task, now: float) -> tuple[TaskEvent, ...]:
    status = task.status
    if task.stop and isinstance(status, (Assigning, Lost)) and now - status.since > LAUNCH_BOUND:
        return (LaunchFailed(task.stop_reason or _STOPPED),)
    return ()
