"""A workflow as lines of a graph: a row for each job, and lanes from a job down to those that wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentless.client.words import WAITING, ran, rank_of, state, where, whole, why
from agentless.model.tasks.task import FAILED, LIVE, STATES
from agentless.model.tasks.task_id import first_try
from agentless.model.text import printable

MARKS = {"failed": "✗", "running": "●", "waiting": "○", "completed": "✓", "other": "–"}
"""What stands in front of a job."""
LANES = 8
"""The most lanes. A job for which none is left is drawn without one, and its followers say what they wait for."""

_BEGUN = ("assigning", "running", "paused", "lost")
_HOW = {
    "completed": "after {}",
    "failed": "if {} fails",
    "any failed": "if any of {} fails",
    "all failed": "if all of {} fail",
    "ended": "when {} has ended",
}
_UNTIL = {
    "completed": "{}",
    "failed": "{} to fail",
    "any failed": "any of {} to fail",
    "all failed": "all of {} to fail",
    "ended": "{} to end",
}
_NAMED = 3
"""The most jobs that are named in a row."""
_JOINTS = {"dr": "├", "dl": "┤", "dlr": "┼", "r": "╰", "l": "╯", "lr": "┴"}
"""Where a line leaves a lane that comes from above: whether it goes on down, left and right."""


class Line(NamedTuple):
    """A row: what is drawn left and right of the mark of a job. `below` are the lanes that go on below it."""

    left: str
    right: str
    below: str
    job: JobTasks

    @property
    def kind(self) -> str:
        """The kind of its mark."""
        return kind_of(self.job.tasks)


@dataclass(slots=True)
class JobTasks:
    """A job with its tasks, and how it waits for other jobs, by their names.

    `names` has the job of each task of the workflow, `sizes` the number of tasks of each job.
    """

    job: str
    names: Mapping[str, str]
    sizes: Mapping[str, int]
    tasks: list[dict[str, Any]] = field(default_factory=list)
    parameters: list[dict[str, str]] = field(default_factory=list)
    after: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name, how many tasks it has, and on how many nodes each of them is."""
        times, gang = len(self._runs), self.tasks[0].get("gang")
        return self.job + (f" ×{times}" if times > 1 else "") + (f", {gang['size']} nodes" if gang else "")

    @property
    def _runs(self) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """Its tasks with their values; one on several nodes is one."""
        pairs = zip(self.tasks, self.parameters, strict=True)
        return [(whole(task, self.tasks), values) for task, values in pairs if not rank_of(task)]

    @property
    def is_blocked(self) -> bool:
        """Whether all of it waits for other jobs."""
        return bool(self.after) and {task["state"] for task in self.tasks} == {"blocked"}

    @property
    def waits_for(self) -> dict[str, str]:
        """The jobs that have not ended as it requires, with that end."""
        left = (requirement for task in self.tasks for requirement in task.get("waits_for") or ())
        jobs = ((self.names.get(each["on"], each["on"]), each) for each in left)
        return {job: how(each, self.sizes.get(job, 1)) for job, each in jobs}

    @property
    def words(self) -> str:
        """How far it is, or what it waits for."""
        if self.is_blocked:
            waits = self.waits_for or self.after
            return f"waits for {_listed([_UNTIL[end].format(name) for name, end in waits.items()])}"
        runs = self._runs
        if len(runs) == 1:
            return how_far(runs[0][0], _listed([where(each) for each in self.tasks]))
        counts = counts_in_words(Counter(task["state"] for task, _ in runs))
        failed = [_values(values) for task, values in runs if task["state"] in FAILED and values]
        return f"{counts} (failed: {_listed(failed)})" if failed and len(failed) < len(runs) else counts

    @property
    def follows(self) -> str:
        """After what it came, unless it still waits: `after train, if check fails`."""
        if self.is_blocked:
            return ""
        return ", ".join(
            words.format(_listed(names))
            for end, words in _HOW.items()
            if (names := [name for name, each in self.after.items() if each == end])
        )


def kind_of(tasks: Iterable[Mapping[str, Any]]) -> str:
    """The kind of mark for these tasks."""
    states = {task["state"] for task in tasks}
    if states & {*FAILED}:
        return "failed"
    if states & {*_BEGUN} or (states & {*WAITING} and states & {"completed"}):
        return "running"
    if states & {*WAITING}:
        return "waiting"
    return "completed" if states == {"completed"} else "other"


def how_far(task: dict[str, Any], places: str = "") -> str:
    """How far a task is: `running for 2m 0s, node1::0`. `places`: where all of its nodes are."""
    begun = f" {'in' if task['ended_at'] else 'for'} {ran(task)}, {places or where(task)}" if task["started_at"] else ""
    reason = why(task) if task["state"] not in ("completed", "cancelled", "blocked") else ""
    return f"{state(task)}{begun}" + (f": {reason}" if reason else "")


def counts_in_words(counts: Mapping[str, int]) -> str:
    """How many tasks are in which state, the ended ones first: `30 completed, 2 failed, 4 running`."""
    order = (*(each for each in STATES if each not in LIVE), "not needed", *reversed(LIVE))
    return ", ".join(f"{counts[each]} {each}" for each in order if counts.get(each))


def counts_of(workflow: Mapping[str, Any]) -> dict[str, int]:
    """The number of its tasks by state. What was cancelled for want of a failure was not needed.

    So was all that was cancelled in one that has completed.
    """
    counts, cancelled = dict(workflow["counts"]), workflow["counts"].get("cancelled", 0)
    spare = cancelled if workflow["state"] == "completed" else min(cancelled, workflow.get("not_needed", 0))
    if spare:
        counts |= {"cancelled": cancelled - spare, "not needed": spare}
    return {word: count for word, count in counts.items() if count}


def done_in_words(workflow: Mapping[str, Any]) -> str:
    """How far a workflow is, without what only waits: `4/14 done, 1 failed, 2 running`."""
    counts, missing = counts_of(workflow), workflow.get("missing", 0)
    done = sum(count for state, count in counts.items() if state not in LIVE)
    others = counts_in_words({state: counts[state] for state in counts if state not in ("completed", *WAITING)})
    words = ", ".join(filter(None, (others, f"{missing} missing" if missing else "")))
    return f"{done}/{sum(counts.values()) + missing} done" + (f", {words}" if words else "")


def job_tasks(jobs: Sequence[dict[str, Any]]) -> dict[str, JobTasks]:
    """The jobs of a workflow by name, each behind those that it waits for."""
    names = {first_try(job["task"]["id"]): job["job"] for job in jobs}
    sizes = sizes_of(jobs)
    found: dict[str, JobTasks] = {}
    for job in jobs:
        one = found.setdefault(job["job"], JobTasks(job["job"], names, sizes))
        one.tasks.append(job["task"])
        one.parameters.append(job["parameters"])
        for requirement in job["requires"]:
            if (name := names.get(requirement["on"], requirement["on"])) != job["job"]:
                one.after.setdefault(name, how(requirement, sizes.get(name, 1)))
    return found


def sizes_of(jobs: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many tasks each job has; those of a gang are one."""
    return Counter(job["job"] for job in jobs if not rank_of(job["task"]))


def how(requirement: Mapping[str, Any], tasks: int) -> str:
    """How a job has to end that has so many tasks: `failed`, `any failed`."""
    if requirement["state"] != "failed" or tasks < 2:
        return str(requirement["state"])
    return "any failed" if requirement.get("one_of") else "all failed"


def lines(jobs: Sequence[dict[str, Any]]) -> list[Line | None]:
    """The rows, each job below those that it waits for; None between jobs that have nothing to do with each other."""
    return _Drawing(job_tasks(jobs)).rows()


def text(jobs: Sequence[dict[str, Any]]) -> str:
    """The whole graph as a text."""
    found = lines(jobs)
    names = max((len(line.job.name) for line in found if line), default=0)
    rows = (
        f"{line.left}{MARKS[line.kind]}{line.right}  {line.job.name:{names}}  {line.job.words}  {line.job.follows}"
        if line
        else ""
        for line in found
    )
    return "".join(printable(row.rstrip()) + "\n" for row in rows)


class _Drawing:
    """Gives each job a row and a place in it. A lane leads from a job down to the last one that waits for it."""

    def __init__(self, jobs: dict[str, JobTasks]) -> None:
        self._jobs = jobs
        self._before = _without_detours(jobs)
        self._followers: dict[str, list[str]] = {name: [] for name in jobs}
        for name, before in self._before.items():
            for each in before:
                self._followers[each].append(name)
        self._left = {name: len(followers) for name, followers in self._followers.items()}
        self._lanes: list[str | None] = [None] * LANES
        self._last = -1  # the place of the job in the row above

    def rows(self) -> list[Line | None]:
        drawn: list[tuple[str, int, str, str] | None] = []
        apart = False
        for name in self._order():
            if drawn and not any(self._lanes) and (apart or self._followers[name]) and not self._before[name]:
                drawn.append(None)
            drawn.append((name, *self._row(name)))
            apart = bool(self._before[name])
        wide = max((len(cells) for each in drawn if each for cells in each[2:]), default=1)
        return [each and self._line(*each, wide) for each in drawn]

    def _line(self, name: str, mark: int, drawn: str, below: str, wide: int) -> Line:
        drawn = drawn.ljust(wide)
        return Line(drawn[:mark], drawn[mark + 1 :], below.ljust(wide), self._jobs[name])

    def _order(self) -> list[str]:
        """The names as they are drawn: a job, then at once what only waited for it, the longest way last.

        What waits for a failure is before all others, so that it is beside the way that the workflow is to go.
        """
        height: dict[str, int] = {}
        for name in reversed(self._jobs):
            height[name] = 1 + max((height[each] for each in self._followers[name]), default=0)
        waits = {name: len(before) for name, before in self._before.items()}
        stack = [name for name in reversed(self._jobs) if not waits[name]]
        found = []
        while stack:
            found.append(name := stack.pop())
            for each in self._followers[name]:
                waits[each] -= 1
            ready = [each for each in self._followers[name] if not waits[each]]
            ready.sort(key=lambda each: ("completed" in self._jobs[each].after.values(), height[each]))
            stack += ready[::-1]
        return found

    def _row(self, name: str) -> tuple[int, str, str]:
        """The place of the mark in the row of a job, what is drawn around it, and what below."""
        lanes, job = self._lanes, self._jobs[name]
        before = [at for at, each in enumerate(lanes) if each in self._before[name]]
        for each in self._before[name]:
            self._left[each] -= 1
        ending = [at for at in before if not self._left[lanes[at] or ""]]
        mark = ending[0] if ending else self._free(before)
        drawn = _drawn(lanes, before, ending, mark, dashed="completed" not in job.after.values())
        for at in ending:
            lanes[at] = None
        if self._left[name] and mark < LANES:
            lanes[mark] = name
        self._last = mark
        return 2 * mark, drawn, " ".join("│" if each else " " for each in lanes).rstrip()

    def _free(self, before: Sequence[int]) -> int:
        """A free place for a mark, right of what it waits for, if there is one."""
        above = None if before or not any(self._lanes) else self._last  # else it seems to follow that one
        free = [at for at, name in enumerate(self._lanes) if name is None and at != above]
        right = [at for at in free if at > max(before, default=-1)]
        return next(iter(right or free), LANES)


def _drawn(
    lanes: Sequence[str | None], before: Sequence[int], ending: Sequence[int], mark: int, *, dashed: bool
) -> str:
    """A row: lanes that pass, and lines from those of `before` to the mark."""
    first, last = min([mark, *before]), max([mark, *before])
    used = max([last, *(at for at, name in enumerate(lanes) if name is not None)])
    cells = [" "] * (2 * used + 1)
    for at in range(2 * first, 2 * last):
        cells[at] = "╌" if dashed else "─"
    for at, name in enumerate(lanes):
        if at in before:
            ways = ("" if at in ending else "d") + ("l" if at > first else "") + ("r" if at < last else "")
            cells[2 * at] = _JOINTS.get(ways, "│")
        elif name is not None:
            cells[2 * at] = "│"
    cells[2 * mark] = " "
    return "".join(cells)


def _without_detours(jobs: Mapping[str, JobTasks]) -> dict[str, list[str]]:
    """What each job waits for, without those that it waits for by way of others, too."""
    order = {name: number for number, name in enumerate(jobs)}
    above: dict[str, int] = {}  # as bits: all that a job waits for, directly or not
    found = {}
    for name, job in jobs.items():
        before = [each for each in job.after if order.get(each, len(order)) < order[name]]
        behind = 0
        for each in before:
            behind |= above[each]
        found[name] = [each for each in before if job.after[each] != "completed" or not behind >> order[each] & 1]
        above[name] = behind | sum(1 << order[each] for each in before)
    return found


def neighbours(task: Mapping[str, Any], tasks: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """The jobs that a task of a workflow waits for, and those that wait for it, of all its `tasks`."""
    every = list(tasks)
    names = {first_try(each["id"]): str(each["job"]) for each in every}
    wanted = [requirement["on"] for requirement in task["requires"]]
    before = dict.fromkeys(names[on] for on in wanted if on in names)
    own = {first for first, name in names.items() if name == task["job"]}
    behind = dict.fromkeys(str(each["job"]) for each in every if own & {one["on"] for one in each["requires"]})
    return _listed([*before]), _listed([*behind])


def _values(parameters: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in parameters.items())


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:_NAMED])} and {more} more"
