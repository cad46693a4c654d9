"""How far the tasks are that others wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from agentless.controller.state.event_bus import EventBus, OutputsSettled, TaskChanged, TaskForgotten
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.waiters import Key
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import attempt_of, first_try
from agentless.rules.tasks.dependencies import REMOVED, Standing
from agentless.rules.workflows.workflow import job_title


class Arrivals(Protocol):
    """What ended tasks leave for those that wait for them, on its way here."""

    def awaited(self, task_id: str) -> str | None:
        """What is still to arrive of an ended task, in words; None if nothing is."""


class Prerequisites:
    """The standings of tasks and batches, read once and then kept up to date.

    `touched` are the blocked tasks whose requirements have changed since somebody looked at them, with what these are
    about; None: any of them may have changed. A task whose artifacts are still to arrive has not ended yet for those
    that wait for it, so they hold no GPU meanwhile.
    """

    def __init__(self, tasks: Tasks, arrivals: Arrivals, bus: EventBus) -> None:
        self.touched: dict[str, set[Key] | None] = {}
        self._tasks = tasks
        self._arrivals = arrivals
        self._standings: dict[Key, Standing] = {}
        bus.subscribe(TaskChanged, lambda change: self._changed(change.after, live=change.after.live))
        bus.subscribe(TaskForgotten, lambda gone: self._changed(gone.task, live=False))
        bus.subscribe(OutputsSettled, lambda settled: self._changed(settled.task, live=False))

    def standing(self, requirement: Requirement) -> Standing:
        """How far what a requirement names is."""
        key = requirement.key
        if key not in self._standings:
            self._standings[key] = self._read(requirement)
        return self._standings[key]

    def arriving(self, first: str) -> str | None:
        """What is still to arrive of a task that has ended, in words; None if nothing is, or if it has not ended."""
        if self._tasks.last_live(first):
            return None  # without a look into the history: screens ask for each task that waits
        last = self._last(first)
        return self._arrivals.awaited(last[0]) if last and last[1] else None

    def tidy(self) -> None:
        """Drop the standings for which nobody waits any more."""
        self._standings = {key: found for key, found in self._standings.items() if key in self._tasks.waiters}

    # ------------------------------------------------------------------ inside

    def _read(self, requirement: Requirement) -> Standing:
        if requirement.batch:
            return self._batch(requirement.on)
        return self._single(requirement.on, self._tasks.find(requirement.on))

    def _changed(self, task: Task, *, live: bool) -> None:
        waiters, first = self._tasks.waiters, first_try(task.id)
        for key in task.waited_for_as:
            standing = self._standings.get(key)
            if standing is None:
                if key in waiters and not live:
                    if key == (False, first):
                        self._standings[key] = self._single(first, task)
                    self._touch(key)  # a batch is read when somebody looks
            elif not key[0] and first not in standing.ends:
                continue  # only the first member says who is in its gang
            elif not live or standing.ends.get(first, "") is not None:
                end = self._end(first)
                if first not in standing.ends or standing.ends[first] != end:
                    standing.put(first, end)
                    self._touch(key)

    def _touch(self, key: Key) -> None:
        for task_id in self._tasks.waiters.of(key):
            if (changed := self.touched.setdefault(task_id, set())) is not None:
                changed.add(key)

    def _end(self, first: str) -> str | None:
        """The state in which a task has ended, by its last try; None while that is live, or something is to arrive."""
        if (last := self._last(first)) is None:
            return REMOVED
        task_id, end = last
        return None if end is None or self._arrivals.awaited(task_id) is not None else end

    def _last(self, first: str) -> tuple[str, str | None] | None:
        """The last try of a task, and its state if it has ended."""
        known: dict[str, str | None] = dict(self._tasks.history.tries(first))
        if live := self._tasks.last_live(first):
            known[live] = None
        return max(known.items(), key=lambda each: attempt_of(each[0])) if known else None

    def _single(self, first: str, task: Task | None) -> Standing:
        """The standing of one task, or of the gang that it leads."""
        standing = standing_of(task) if task else Standing()
        gang = task.spec.gang if task and task.lead == first else None
        for each in gang.members if gang else (first,):
            standing.put(each, self._end(each))
        return standing

    def _batch(self, batch: str) -> Standing:
        live = ((task.id, None) for task in self._tasks.in_batch(batch))
        ended = (
            (task_id, state if self._arrivals.awaited(task_id) is None else None)
            for task_id, state in self._tasks.history.states(batch)
        )
        return _standing([*ended, *live])


def standing_of(task: Task) -> Standing:
    """An empty standing for a task; it has the title of its job."""
    name = job_name(task)
    return Standing(jobs={first_try(task.id): job_title(*name)} if name else {})


def job_name(task: Task | None) -> tuple[str, Mapping[str, str]] | None:
    """The job of a workflow that a task is, with the values by which it differs from others of it."""
    return (task.spec.job.name, task.spec.parameters) if task and task.spec.job else None


def _standing(tries: Iterable[tuple[str, str | None]]) -> Standing:
    """The standing of a batch; of each task, the last try counts."""
    standing = Standing()
    for task_id, state in sorted(tries, key=lambda each: attempt_of(each[0])):
        standing.put(first_try(task_id), state)
    return standing
