"""The states of a task. `apply` is the only way from one state to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agentless.errors import IllegalMove
from agentless.model.scheduling.overflow import AskedOfNodes
from agentless.model.tasks.task import (
    Assigning,
    Blocked,
    Ended,
    KeptPlace,
    Lost,
    Outcome,
    Paused,
    Pending,
    Placement,
    Running,
    Scheduled,
    StopKind,
    Submitted,
    Task,
    Waiting,
    outcome_of,
)
from agentless.model.tasks.task_event import (
    Adopted,
    Assigned,
    BlockedBy,
    Dated,
    Delayed,
    Exited,
    Froze,
    GaveUp,
    HandedBack,
    HandedOver,
    JobQueued,
    Launched,
    LaunchFailed,
    LostContact,
    Met,
    Moved,
    NotStarted,
    PlaceLost,
    Preempts,
    Queued,
    RequirementMet,
    Resized,
    Restarted,
    StartAsked,
    Step,
    StopAsked,
    TaskEvent,
    TermsChanged,
    Thawed,
    Unplaced,
    Vanished,
)


def apply(task: Task, event: TaskEvent, now: float) -> Task:
    """The task after `event` at `now` (Unix seconds, controller clock); raises IllegalMove."""
    match task.status, event:
        case _, Adopted():
            return task
        case Ended(placement=Placement() as placement, container=str(container)), Restarted() as event:
            return task.afresh(_again(task, placement, container, event, now))
        case Ended(placement=Placement() as placement, exit_code=None) as ended, Launched(container=container):
            return replace(task, status=Running(placement, container, ended.started_at or now, ended.run))
        case Ended(placement=Placement() as placement, container=str()), StartAsked() if task.spec.traits.comes_back:
            return task.afresh(Assigning(placement, now))
        case Assigning(), NotStarted(was=was, reason=reason) if task.spec.traits.comes_back:
            return task.afresh(replace(was, reason=reason))
        case Ended(placement=Placement() as placement) as ended, JobQueued() as event:
            again = _requeued(placement, event, now)
            # One that was stopped before it began, and is in the queue all the same, is stopped once more.
            return replace(task, status=again) if task.stop and ended.state == "cancelled" else task.afresh(again)
        case Ended(), _:
            raise IllegalMove(f"task {task.id} has ended ({task.state})")
        case status, StopAsked(how=how) if isinstance(status, Waiting) and how != "preempt":
            return replace(task, stop=how, status=Ended("cancelled", now, reason="stopped before it started"))
        case _, StopAsked(how="preempt") if task.stop or task.placement is None:
            raise IllegalMove(f"task {task.id} is {task.state}: it cannot be preempted")
        case _, StopAsked(how=how, grace=grace, reason=reason):
            why = task.stop_reason if task.stop else reason
            return replace(task, stop="kill" if task.stop == "kill" else how, grace=grace, stop_reason=why)
        case ((Blocked() | Pending()), BlockedBy(on=on, reason=reason)):
            return replace(task, status=Blocked(on, reason))
        case Blocked() as status, RequirementMet(on=on):
            return replace(task, status=replace(status, on=on))
        case ((Blocked() | Pending()), Delayed(until=until, reason=reason)):
            return replace(task, status=Scheduled(until, reason))
        case ((Blocked() | Scheduled()), Queued()):
            return replace(task, status=Pending(), queued_at=now)
        case Pending(), Queued():
            return task
        case Pending(), Moved(rank=rank):
            return replace(task, rank=rank)
        case Pending(place=None) as status, Preempts(place=place) if not task.victims:
            return replace(task, status=replace(status, place=place), victims=place.victims)
        case Pending(place=KeptPlace()) as status, PlaceLost(reason=reason):
            return replace(task, status=replace(status, place=None, reason=reason))
        case Pending(place=None), HandedOver(cluster, gpu_types) if not task.spec.needs.nodes:
            left = AskedOfNodes(task.spec.needs, task.spec.container)
            spec = task.spec.on_cluster(cluster, gpu_types)
            return replace(task, spec=spec, status=Pending(), rank=None, before_overflow=left)
        case ((Assigning() | Lost(container=None)), HandedBack(refusal)) if task.before_overflow and not task.stop:
            spec = replace(task.spec, needs=task.before_overflow.needs, container=task.before_overflow.container)
            others = [each for each in task.refusals if each.cluster != refusal.cluster]
            return replace(task, spec=spec, status=Pending(), before_overflow=None, refusals=(*others, refusal))
        case ((Blocked() | Pending()), GaveUp(reason=reason)):
            return replace(task, status=Ended("cancelled", now, reason=reason))
        case ((Assigning() | Lost(container=None)), Unplaced(reason, at_once, unfit)) if not task.stop:
            waiting: Pending | Blocked = Pending(reason, None if at_once else now)
            if task.placement and task.placement.after:
                waiting = Blocked(task.spec.terms.requires)
            spec = task.spec.without(unfit) if unfit else task.spec
            return replace(task, spec=spec.unmet(), status=waiting)
        case Blocked(), Assigned(placement=Placement(after=()) as placement):
            raise IllegalMove(f"task {task.id} is blocked: {placement.node} does not wait in its place")
        case ((Pending() | Blocked()), Assigned(placement=placement)):
            return replace(task, status=Assigning(placement, now), signed=True)
        case ((Assigning() | Lost(container=None)), Met(gang=gang)):
            return replace(task, spec=replace(task.spec, gang=gang))
        case Pending(), LaunchFailed(reason=reason):
            return replace(task, status=Ended("failed", now, reason=reason))
        case Assigning() as status, Step(text=text):
            return replace(task, status=replace(status, step=text))
        case Lost(container=None) as status, Step(text=text):
            return replace(task, status=Assigning(status.placement, now, text))
        case Submitted() as status, JobQueued(container=container, reason=reason, expected=expected):
            return replace(task, status=replace(status, container=container, reason=reason, expected=expected))
        case (Assigning() | Running() | Paused() | Lost()) as status, JobQueued() as event:
            return replace(task, status=_requeued(status.placement, event, now))
        case Submitted(placement=placement), Launched(container=container):
            return replace(task, status=Running(placement, container, now))
        case (Assigning() | Lost()) as status, Launched(container=container):
            began, run = (status.started_at or now, status.run) if isinstance(status, Lost) else (now, None)
            return replace(task, status=Running(status.placement, container, began, run))
        case (Running() | Paused()) as status, Dated(run=run, started_at=began) as event:
            began, placement = _within(task, began, now), _located(status.placement, event)
            return replace(task, status=replace(status, placement=placement, run=run, started_at=began))
        case (Running() | Paused()) as status, Restarted() as event:
            return replace(task, status=_again(task, status.placement, status.container, event, now))
        case (Assigning() | Submitted() | Lost(started_at=None)) as status, LaunchFailed(reason, then):
            outcome: Outcome = "cancelled" if task.stop else then
            return replace(
                task, status=Ended(outcome, now, reason=reason, placement=status.placement, container=task.container)
            )
        case ((Running() | Paused()), Resized(cores=cores, memory=memory)):
            return replace(task, spec=replace(task.spec, cores=cores, memory=memory))
        case _, TermsChanged(terms=terms):
            return replace(task, spec=replace(task.spec, terms=terms))
        case Running() as status, Froze():
            return replace(task, status=Paused(status.placement, status.container, status.started_at, status.run))
        case Paused() as status, Thawed():
            return replace(task, status=Running(status.placement, status.container, status.started_at, status.run))
        case (Running() | Paused() | Lost()) as status, Exited() as exited if task.spec.traits.ends_with_process:
            return replace(task, status=_ended(task, status, exited, now))
        case (Running() | Paused() | Lost()) as status, Vanished(reason=reason):
            return replace(task, status=_over(status, "killed" if task.stop else "failed", now, reason))
        case Assigning(placement=placement), LostContact(reason=reason):
            return replace(task, status=Lost(placement, now, reason))
        case (Running() | Paused()) as status, LostContact(reason=reason):
            lost = Lost(status.placement, now, reason, status.container, status.started_at, status.run)
            return replace(task, status=lost)
        case Submitted(placement=placement, container=container), LostContact(reason=reason):
            return replace(task, status=Lost(placement, now, reason, container))
        case Lost(container=str()) as status, LostContact(reason=reason):
            return replace(task, status=replace(status, reason=reason))
        case _:
            raise IllegalMove(f"task {task.id} is {task.state}: a {type(event).__name__} event is not possible")


def _within(task: Task, moment: float, now: float) -> float:
    """Limit a time of the node to the life of the task, since the node's clock may be wrong."""
    return max(task.created_at, min(moment, now))


def _again(task: Task, placement: Placement, container: str, event: Restarted, now: float) -> Running:
    return Running(_located(placement, event), container, _within(task, event.started_at, now), event.run)


def _located(placement: Placement, event: Dated | Restarted) -> Placement:
    return replace(placement, compute_nodes=event.compute_nodes or placement.compute_nodes)


def _requeued(placement: Placement, event: JobQueued, now: float) -> Submitted:
    return Submitted(replace(placement, compute_nodes=""), event.container, now, event.reason, event.expected)


def _ended(task: Task, status: Running | Paused | Lost, exited: Exited, now: float) -> Ended:
    # The end may be reported much later. The engine knows how long it ran, and that is right whatever its
    # clock says.
    began, ended = status.started_at, now
    if began is not None and exited.seconds is not None:
        ended = max(began, min(now, began + exited.seconds))
    word = outcome(task, exited)
    reason = exited.error or ("out of memory: killed by the kernel" if word == "killed_oom" else task.stop_reason)
    return _over(status, word, ended, reason, exited.exit_code)


def _over(
    status: Running | Paused | Lost, word: Outcome, at: float, reason: str | None, exit_code: int | None = None
) -> Ended:
    """The end of a task that has run."""
    return Ended(
        word,
        at,
        exit_code=exit_code,
        reason=reason,
        placement=status.placement,
        container=status.container,
        started_at=status.started_at,
        run=status.run,
    )


_OUTCOMES: Mapping[StopKind, Outcome] = {
    "stop": "stopped",
    "kill": "killed",
    "timeout": "timeout",
    "preempt": "preempted",
}


def outcome(task: Task, exited: Exited) -> Outcome:
    """The state after an end: the requested one, unless the task ran out of memory first."""
    word = exited.outcome or outcome_of(exited.exit_code, oom_killed=exited.oom_killed)
    if task.spec.traits.comes_back and not task.spec.command and word != "killed_oom":
        return "stopped"  # what only waits has neither succeeded nor failed
    return _OUTCOMES[task.stop] if task.stop and word != "killed_oom" else word
