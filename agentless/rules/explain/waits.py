"""What a blocked task, or one on a cluster, waits for, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentless.model.containers.job_id import job_number
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Assigning, Paused, Running, Submitted, Task
from agentless.model.text import enumerated
from agentless.model.units import counted, format_duration
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.tasks.dependencies import Standing, groups, listed
from agentless.rules.tasks.retry import is_last_try

MOST = 3
"""The most tasks and batches that are named."""

_HOW = {"completed": "", "failed": " to fail", "ended": " to end"}


Job = tuple[str, str]
"""The name of a job, and its title, which has also the values by which it differs from others of that name."""


def goes_first(members: Sequence[Task], queue: Sequence[Task], promises: Mapping[str, Promise | None]) -> str:
    """`2 tasks behind it start first, without delaying it`; empty if none does. `members` are one unit of the queue."""
    own, ids = promises.get(members[0].id), [task.id for task in queue]
    if own is None or own.start is None or members[-1].id not in ids:
        return ""
    behind = [promises.get(name) for name in ids[ids.index(members[-1].id) + 1 :]]
    first = sum(each is not None and each.start is not None and each.start < own.start for each in behind)
    words = f"{counted(first, 'task')} behind it {'starts' if first == 1 else 'start'} first, without delaying it"
    return words if first else ""


def waits_for(
    on: Sequence[Requirement],
    about: Callable[[Requirement], str] = lambda _: "",
    job_of: Callable[[Requirement], Job | None] = lambda _: None,
) -> str:
    """`waits for task 2mxf and batch 2mxg to end`, `waits for job train`. `about` adds what is known of each."""
    alike: dict[object, list[list[Requirement]]] = {}
    for number, group in enumerate(groups(on)):
        job = job_of(group[0])
        alike.setdefault((job[0], group[0].state) if job else number, []).append(group)
    every = [*alike.values()]
    named = [_named(each, about, job_of) for each in every[:MOST]]
    if len(every) > MOST:
        named[MOST - 1 :] = [f"{len(every) - MOST + 1} more"]
    return f"waits for {enumerated(named)}"


def _named(
    alike: Sequence[Sequence[Requirement]],
    about: Callable[[Requirement], str],
    job_of: Callable[[Requirement], Job | None],
) -> str:
    group = alike[0]
    how, job = _HOW[group[0].state], job_of(group[0])
    if len(alike) > 1 and job:
        return f"{len(alike)} tasks of job {job[0]}{how}"
    if len(group) == 1:
        return f"{f'job {job[1]}' if job else _called(group[0])}{how}{about(group[0])}"
    if job:
        return f"one of {len(group)} tasks of job {job[0]}{how}"
    return f"one of the tasks {listed([f'{each.on}{about(each)}' for each in group])}{how}"


def _called(requirement: Requirement) -> str:
    return f"{'batch' if requirement.batch else 'task'} {requirement.on}"


def progress(requirement: Requirement, standing: Standing) -> str:
    """How many tasks of a batch have ended, in brackets."""
    total = max(len(standing.ends), requirement.members)
    return f" ({total - standing.live} of {total} have ended)"


def in_brackets(task: Task | None) -> str:
    """The state of a task that is waited for."""
    return f" ({task.state})" if task else ""


def coming(task: Task | None, promise: Promise | None, now: float) -> str:
    """What a task does that is waited for, and until when: ` (running, ends within 1h 0m)`."""
    if task is None:
        return ""
    end = _end(task, promise)
    if end is None:
        endless = task.spec.ends_within is None and isinstance(task.status, Running | Paused)
        return f" ({task.state}{' without a time limit' if endless else ''})"
    again = "" if is_last_try(task) else " unless it is retried"
    return f" ({task.state}, ends within {format_duration(max(0.0, end - now))}{again})"


def _end(task: Task, promise: Promise | None) -> float | None:
    """When a task ends at the latest, None if that is not known."""
    within, status = task.spec.ends_within, task.status
    if within is None:
        return None
    if isinstance(status, Running | Paused):
        return status.started_at + within
    if isinstance(status, Assigning):
        return status.since + within
    return promise.start + within if promise and promise.firm and promise.start is not None else None


def room(nodes: Sequence[ClusterNode], types: Sequence[str] = ()) -> str:
    """How many GPUs of a cluster are free, to go on with a sentence; empty if that is not known.

    With types, those of the first, which is one that the cluster has.
    """
    kind = types[0].lower() if types else ""
    nodes = [node.only(kind) for node in nodes] if kind else nodes
    if not (total := sum(count for node in nodes for _, count in node.gpus)):
        return ""
    out = sum(node.is_out for node in nodes)
    return f"; {sum(node.gpus_free for node in nodes)} of its {counted(total, f'{kind} GPU'.lstrip())} free now" + (
        f", {counted(out, 'node')} out" if out else ""
    )


def on_compute_nodes(task: Task) -> str:
    """On which compute nodes of its cluster a task is or was, to go on with a sentence; empty if that is not known."""
    place = task.placement
    return f" on {place.compute_nodes} of {place.node}" if place and place.compute_nodes else ""


def submitted_words(task: Task, status: Submitted, now: float) -> str:
    """Where a task waits that a cluster has in its queue, and why."""
    job, why = job_number(status.container), f": {status.reason}" if status.reason else ""
    left = None if status.expected is None else format_duration(max(0.0, status.expected - now))
    start = f"; Slurm expects to start it in {left}" if left else ""
    if (begin := task.spec.terms.start_at or 0.0) > now:
        start = f"; begins in {format_duration(begin - now)} at the earliest"
    return f"task {task.id} is job {job} in the queue of {status.placement.node}{why}{start}"
