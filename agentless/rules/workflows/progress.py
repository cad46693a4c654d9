"""How far a workflow is, and what follows from the end of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import FAILED, Ended, Task
from agentless.model.tasks.task_id import first_try
from agentless.rules.workflows.carried import MAX_COUNT
from agentless.rules.workflows.graph import parse_reference

_BEGUN = ("assigning", "running", "paused", "lost")


def state_of(tasks: Iterable[Task]) -> str:
    """The state of a workflow, of whose tasks only the last tries are given.

    `stopping`: all that has not ended is being stopped. `failed`: a job has failed. `stopped`: somebody has ended a job
    before its end. `preempted`: one had to give way to others, and was not to run again. `incomplete`: jobs are
    missing, see `missing`. A job that was cancelled because what it waits for cannot happen any more counts for none of
    them.
    """
    found = list(tasks)
    states = {task.state for task in found}
    if any(task.live for task in found):
        if all(map(is_being_stopped, filter(lambda task: task.live, found))):
            return "stopping"
        is_new = not states & {*_BEGUN, "completed", *FAILED}
        return "pending" if is_new else "running"
    if states & {*FAILED}:
        return "failed"
    if states & {"stopped", "killed"} or any(task.state == "cancelled" and task.stop for task in found):
        return "stopped"
    if "preempted" in states:
        return "preempted"
    if missing(found):
        return "incomplete"
    return "completed" if "completed" in states else "cancelled"


def missing(tasks: Iterable[Task]) -> int:
    """How many tasks of a workflow are not known: they were lost with the state, or removed.

    The tasks say how many there are; they may come from labels, so the number is bounded.
    """
    found = [task.spec.job.tasks for task in tasks if task.spec.job]
    return max(0, min(max(found, default=0), MAX_COUNT) - len(found))


def not_needed(tasks: Mapping[str, Task]) -> set[str]:
    """Those of these tasks, by first tries, that were cancelled because the failure they wait for did not happen.

    So were those that wait for such a task.
    """
    found = set[str]()
    for key, task in sorted(tasks.items()):  # each behind those that it waits for
        requires = task.spec.terms.requires if task.state == "cancelled" and not task.stop else ()
        if any(_is_spared(each, tasks.get(each.on), found) for each in requires):
            found.add(key)
    return found


def after(tasks: Mapping[str, Task], begin: Iterable[str]) -> set[str]:
    """Those of these tasks, by the ids of their first tries, that wait for one of `begin`, directly or not."""
    followers: dict[str, list[str]] = {}
    for task_id, task in tasks.items():
        for requirement in task.spec.terms.requires:
            followers.setdefault(requirement.on, []).append(task_id)
    found, left = set[str](), [tasks[each].lead for each in begin]
    while left:
        for each in followers.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(tasks[each].lead)
    return found


def to_stop(tasks: Mapping[str, Task]) -> list[str]:
    """The ids of live tasks that are stopped because a job has failed whose failure stops the others.

    A job that waits for the failed one is not among them: it may be there to clean up.
    """
    failed = [key for key, task in tasks.items() if has_failed(task)]
    if not failed:
        return []
    spared = after(tasks, failed)
    # Those on its other nodes are ended with it, unless they may go on.
    ended = {tasks[key].lead for key in failed if tasks[key].spec.gang}
    # The last first: what waits for another one must not be let go by the end of that one.
    return [
        task.id
        for key, task in sorted(tasks.items(), reverse=True)
        if task.live and key not in spared and task.lead not in ended
    ]


def has_failed(task: Task) -> bool:
    """Whether the end of this last try stops the other jobs of its workflow."""
    return task.state in FAILED and task.spec.job is not None and task.spec.job.on_failure == "stop"


def to_retry(tasks: Mapping[str, Task], job: str | None) -> list[str]:
    """The ids of tasks that run again, each behind those that it waits for: what did not complete, or from a job on.

    So do those that wait for them, also if they have completed because of a failure: it may fail again. Of a job on
    several nodes, it is the first one, with which the others run again.
    """
    if job is not None:
        begin = named(tasks, job)
        again = begin | after(tasks, begin)
    else:
        begin = {key for key, task in tasks.items() if _is_broken(task)}
        again = begin | {key for key in after(tasks, begin) if not tasks[key].live}
    return sorted({tasks.get(tasks[key].lead, tasks[key]).id for key in again})


def named(tasks: Mapping[str, Task], job: str) -> set[str]:
    """The tasks of a job, or those of them with some values: `train[lr=0.1]`. Raises UsageError."""
    wanted = parse_reference(job)
    return {
        key
        for key, task in tasks.items()
        if task.spec.job
        and task.spec.job.name == wanted.job
        and wanted.values.items() <= dict(task.spec.parameters).items()
    }


def _is_spared(requirement: Requirement, on: Task | None, not_needed: Collection[str]) -> bool:
    """Whether what was required to fail has completed, or is not needed either."""
    is_well = on is not None and on.state == "completed"
    return requirement.on in not_needed or (requirement.state == "failed" and is_well)


def is_being_stopped(task: Task) -> bool:
    """Whether somebody has stopped a task that has not ended yet."""
    return task.live and task.stop in ("stop", "kill")


def _is_broken(task: Task) -> bool:
    if not isinstance(task.status, Ended) or task.state == "completed":
        return False
    return task.state != "cancelled" or task.stop is not None


def last_tries(tasks: Iterable[Task]) -> dict[str, Task]:
    """The last tries of these tasks, by the ids of the first ones."""
    found: dict[str, Task] = {}
    for task in tasks:
        known = found.get(key := first_try(task.id))
        if known is None or known.attempt < task.attempt:
            found[key] = task
    return dict(sorted(found.items()))
