"""What follows for a task that waits for other tasks, when one of those has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import FAILED, Blocked, Task
from agentless.model.tasks.task_event import BlockedBy, Delayed, GaveUp, Queued, RequirementMet, TaskEvent
from agentless.model.text import enumerated

REMOVED = "removed"
"""The state of a task that was removed."""

_NAMED = 2
"""The most tasks that are named of several."""
Verdict = Literal["met", "open", "impossible"]

_WORDS: Mapping[str, str] = {
    "completed": "completed",
    "failed": "failed",
    "killed": "was killed",
    "killed_oom": "ran out of memory",
    "timeout": "reached its time limit",
    "stopped": "was stopped",
    "cancelled": "was cancelled",
    "preempted": "was preempted",
    "refused": "was refused",
    REMOVED: "was removed",
}


@dataclass(slots=True)
class Standing:
    """The tasks that a requirement names, by the id of the first try: None while live, else the state at the end.

    A try that is tried again is no end. `jobs` are the titles of those that are jobs of a workflow.
    """

    ends: dict[str, str | None] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def put(self, task: str, end: str | None) -> None:
        """Set the state of a task."""
        if task in self.ends:
            self.counts[_kind(self.ends[task])] -= 1
        self.ends[task] = end
        self.counts[_kind(end)] += 1

    @property
    def live(self) -> int:
        """How many have not ended."""
        return self.counts["live"]


def _kind(end: str | None) -> str:
    return "live" if end is None else "failed" if end in FAILED else "completed" if end == "completed" else "other"


def verdict(requirement: Requirement, standing: Standing, others_are_open: bool = False) -> Verdict:
    """Whether a requirement is met, or still can be. `others_are_open` that it is met together with."""
    counts, missing = standing.counts, max(0, requirement.members - len(standing.ends))
    others = counts["other"] + missing  # what is missing was removed, whatever its end was
    if requirement.state == "completed" and counts["failed"] + others:
        return "impossible"
    if counts["live"] or others_are_open:
        return "open"
    if requirement.state == "failed" and not counts["failed"]:
        return "impossible"
    return "met"


def why_impossible(requirement: Requirement, standing: Standing) -> str:
    """Why it cannot be met any more, in words."""
    on, ends, jobs = requirement.on, standing.ends, standing.jobs
    if requirement.one_of and len(ends) > 1:
        tasks = "jobs" if jobs.keys() >= ends.keys() else "tasks"
        return f"needs one of the {tasks} {listed([jobs.get(each, each) for each in ends])} to fail, but none failed"
    if not requirement.batch:
        how = "fail" if requirement.state == "failed" else "complete"
        # Of a gang, the end of one member has stopped the others.
        end = min(filter(None, ends.values()), key=lambda end: (_kind(end) != "failed", end == "completed"), default="")
        task = f"job {jobs[on]}" if on in jobs else f"task {on}"
        return f"needs {task} to {how}, but it {ended_words(end or REMOVED)}"
    if requirement.state == "failed":
        return f"needs a task of batch {on} to fail, but none failed"
    found = next(((task, end) for task, end in ends.items() if end not in (None, "completed")), None)
    culprit = f"task {found[0]} {ended_words(found[1] or '')}" if found else "one was removed"
    return f"needs all tasks of batch {on} to complete, but {culprit}"


def groups(on: Iterable[Requirement]) -> list[list[Requirement]]:
    """Requirements with those that they are met together with."""
    found: dict[object, list[Requirement]] = {}
    for number, each in enumerate(on):
        found.setdefault(each.one_of or (number,), []).append(each)
    return list(found.values())


def listed(words: Sequence[str]) -> str:
    """`2mxf, 2mxg and 3 more`."""
    named = [*words[:_NAMED], *([f"{len(words) - _NAMED} more"] if len(words) > _NAMED else [])]
    return enumerated(named)


def together(standings: Sequence[Standing]) -> Standing:
    """The standing of requirements that are met together."""
    if len(standings) == 1:
        return standings[0]
    found = Standing()
    for each in standings:
        found.jobs |= each.jobs
        for task, end in each.ends.items():
            found.put(task, end)
    return found


def still_left(
    group: Sequence[Requirement], standings: Sequence[Standing], result: Verdict
) -> Sequence[Requirement | None]:
    """What remains of each of the requirements that are met together. Those without a standing, the last, are open.

    When one task has failed, the others only have to end. A gang has not ended before its last member has, and may fail
    until then.
    """
    if result == "met":
        return [None] * len(group)
    if len(group) == 1 or result == "impossible":
        return group
    if any(standing.counts["failed"] for standing in standings):
        group = [replace(each, state="ended", one_of=0) for each in group]
    known = [each if standing.live else None for each, standing in zip(group, standings, strict=False)]
    return [*known, *group[len(standings) :]]


def ended_words(state: str) -> str:
    """An end as a verb: `was stopped`."""
    return _WORDS.get(state, f"ended as {state}")


def follow(
    task: Task,
    standing: Callable[[Requirement], Standing],
    now: float,
    changed: Collection[Requirement] | None = None,
) -> TaskEvent | None:
    """The event that follows for a blocked task; None if nothing has changed for it.

    `changed` are those of its requirements that may have changed, None if that is unknown: there may be a thousand.
    """
    if not isinstance(task.status, Blocked) or task.stop:
        return None
    event = first_event(task, task.status.on, standing, now, None if task.status.reason else changed)
    if not isinstance(event, BlockedBy) or event.reason != task.status.reason:
        return event
    return RequirementMet(event.on) if event.on != task.status.on else None


def first_event(
    task: Task,
    on: Sequence[Requirement],
    standing: Callable[[Requirement], Standing],
    now: float,
    changed: Collection[Requirement] | None = None,
) -> TaskEvent:
    """The event for a task that waits for these: still blocked, in the queue, scheduled, or given up.

    With `changed`, which are some of them, the others are open.
    """
    rest, why = dict[int, Requirement | None](), ""
    for group in groups(on if changed is None else _in_order(on, changed)):
        standings = [standing(each) for each in group]
        found = together(standings)
        every = group if changed is None else [*group, *_met_with(group, on)]
        result = verdict(group[0], found, len(every) > len(group))
        rest |= zip(map(id, every), still_left(every, standings, result), strict=True)
        if result == "impossible" and not why:
            why = why_impossible(group[0], found if task.spec.job else replace(found, jobs={}))
    if why and task.spec.terms.if_impossible != "wait":
        return GaveUp(why)
    if left := tuple(filter(None, map(rest.get, map(id, on), on))):
        return BlockedBy(left, why)
    start_at = task.spec.terms.start_at
    return Delayed(start_at) if start_at is not None and start_at > now else Queued()


def _in_order(on: Iterable[Requirement], some: Collection[Requirement]) -> Collection[Requirement]:
    """Some of the requirements `on`, in their order."""
    if len(some) < 2:
        return some
    found = set(map(id, some))
    return [each for each in on if id(each) in found]


def _met_with(some: Sequence[Requirement], on: Iterable[Requirement]) -> list[Requirement]:
    """The other requirements `on` that these, which are met together, are met together with."""
    number, found = some[0].one_of, set(map(id, some))
    return [each for each in on if each.one_of == number and id(each) not in found] if number else []
