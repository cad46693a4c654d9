"""Dependencies: resolves what a task waits for, and lets it go on when that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.controller.guarded import guarded
from agentless.controller.state.event_bus import EventBus, OutputsSettled, TaskChanged, TaskForgotten
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.prerequisites import Prerequisites, standing_of
from agentless.controller.state.waiters import Key
from agentless.errors import Refused, StateError, UsageError
from agentless.model.tasks.requirement import EARLIER, Requirement
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_event import BlockedBy, GaveUp, Queued, RequirementMet, TaskEvent
from agentless.model.tasks.task_id import first_try
from agentless.ports import Clock
from agentless.rules.tasks.dependencies import Standing, first_event, follow

AT_ONCE = 500
"""The most tasks that one end lets go on at once. The others follow in the next moment."""
ENDS_AT_ONCE = 20
"""The most tasks that are given up in a row. Each is a write of its own."""

_MET = "what it waited for has ended as required"
_PARTLY = "a part of what it waited for has ended as required"
_POSSIBLE = "what it waits for can end as required again"
_IMPOSSIBLE = "what it waited for cannot end as required any more"


class Dependencies:
    """Says what becomes of tasks that wait for others."""

    def __init__(
        self, ledger: Ledger, lookup: Lookup, prerequisites: Prerequisites, bus: EventBus, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._lookup = lookup
        self._prerequisites = prerequisites
        self._clock = clock
        self._doomed: dict[str, None] = {}
        self._stepping = False
        self._wake = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        bus.subscribe(TaskChanged, lambda _: self._step())
        bus.subscribe(TaskForgotten, lambda _: self._step())
        bus.subscribe(OutputsSettled, lambda _: self._step())

    def start(self) -> None:
        """Look at all blocked tasks once, since an earlier controller may have stopped in between; then keep on."""
        self._prerequisites.touched |= dict.fromkeys(self._tasks.waiters)
        self._work = asyncio.create_task(self._keep_working(), name="dependencies")
        self._wake.set()

    async def close(self) -> None:
        """Leave the rest to the next controller."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def tick(self) -> None:
        """Try again what could not be written."""
        self._prerequisites.tidy()
        if self._is_behind:
            self._wake.set()

    def work(self) -> bool:
        """Do a part of what there is to do; returns whether some is left. Raises StateError."""
        self._look()
        for task_id in list(self._doomed)[:ENDS_AT_ONCE]:
            if isinstance(event := self._follow(task_id, None), GaveUp):
                self._ledger.apply(task_id, event, _IMPOSSIBLE)
            self._doomed.pop(task_id, None)
        return self._is_behind

    # ------------------------------------------------------------------ new tasks

    def resolved(self, tasks: Sequence[Task], *, each: bool = False) -> list[Task]:
        """New tasks of one request, with the ids of what they wait for.

        `each`: the first task waits for the first one of a batch, the second for the second. Raises NotFound,
        Refused, or UsageError.
        """
        single, batches = dict[Requirement, Requirement](), dict[str, tuple[str, ...]]()
        found = list[Task]()
        for number, task in enumerate(tasks):
            requires = dict[Requirement, None]()
            for wanted in task.spec.terms.requires:
                if earlier := EARLIER.fullmatch(wanted.on):
                    requires[replace(wanted, on=_earlier(tasks, number, int(earlier[1])))] = None
                    continue
                if wanted.batch:
                    if wanted.on not in batches:
                        batches[wanted.on] = self._members(wanted.on)
                    batch, *members = batches[wanted.on]
                    one = _paired(batch, members, wanted, number, len(tasks)) if each else None
                    requires[one or _whole(batch, members, wanted)] = None
                    continue
                if wanted not in single:
                    single[wanted] = self._single(wanted)
                requires[single[wanted]] = None
            terms = replace(task.spec.terms, requires=tuple(requires))
            found.append(replace(task, spec=replace(task.spec, terms=terms)) if requires else task)
        return found

    def first(
        self, tasks: Sequence[Task], refused: Mapping[str, object] | None = None
    ) -> dict[str, BlockedBy | GaveUp]:
        """The first events of those of these new tasks that may not start yet, or never.

        `refused` are those that will not be added.
        """
        fresh, found = dict[str, Standing](), dict[str, BlockedBy | GaveUp]()
        if not any(task.spec.terms.requires for task in tasks):
            return found
        for task in tasks:
            event = self._first(task, fresh) if task.spec.terms.requires else None
            if isinstance(event, BlockedBy | GaveUp):
                found[task.id] = event
            fresh[task.id] = standing_of(task)
            is_gone = (refused or {}).get(task.id) or isinstance(event, GaveUp)
            fresh[task.id].put(task.id, "refused" if is_gone else None)
        return found

    def again(self, task: Task, *, ran: bool) -> TaskEvent:
        """The first event of the next try of an ended task, which somebody asked for; raises Refused.

        If it `ran` before, its requirements were met. Then it waits only for those of them that are tried again.
        """
        on = task.spec.terms.requires
        if ran:
            on = tuple(each for each in on if self._prerequisites.standing(each).live)
        event = first_event(task, on, self._prerequisites.standing, self._clock.now())
        if isinstance(event, GaveUp):
            if ran:
                return Queued()
            raise Refused(f"task {first_try(task.id)} {event.reason}; retry that one first")
        return event

    # ------------------------------------------------------------------ inside

    def _first(self, task: Task, fresh: Mapping[str, Standing]) -> TaskEvent:
        def standing(requirement: Requirement) -> Standing:
            same = None if requirement.batch else fresh.get(requirement.on)
            return same or self._prerequisites.standing(requirement)

        return first_event(task, task.spec.terms.requires, standing, self._clock.now())

    def _single(self, wanted: Requirement) -> Requirement:
        """The requirement with the id of the first try of its task; of a gang, with that of its first member."""
        task = self._lookup.find(wanted.on, "--after-batch")
        self._check(task)
        return replace(wanted, on=task.lead, members=0)

    def _members(self, reference: str) -> tuple[str, ...]:
        """The id of the batch of a task, and those of its tasks."""
        tasks = self._lookup.all(reference, ended=True, newest=0)
        for task in tasks:
            self._check(task)
        return tasks[0].batch, *sorted({first_try(task.id) for task in tasks})

    def _check(self, task: Task) -> None:
        if not self._tasks.knows(task.id):
            raise Refused(
                f"this controller does not know task {task.id}, so no task can wait for it; to take over your own "
                "tasks, run: agentless recover"
            )
        if task.spec.traits.comes_back:
            raise UsageError(f"task {task.id} is a VPS, which has no end; choose another task to wait for")

    @property
    def _is_behind(self) -> bool:
        return bool(self._prerequisites.touched or self._doomed)

    def _follow(self, task_id: str, touched: Iterable[Key] | None) -> TaskEvent | None:
        task = self._tasks.live.get(task_id)
        changed = None if touched is None else self._tasks.waiters.between(task_id, touched)
        return follow(task, self._prerequisites.standing, self._clock.now(), changed) if task else None

    def _step(self) -> None:
        """Right after a change: let those go on whose turn it is, before the queue is planned without them."""
        if self._prerequisites.touched and not self._stepping:
            self._stepping = True
            try:
                self._look()
            finally:
                self._stepping = False
                self._wake.set()

    def _look(self) -> None:
        """Look at tasks whose requirements have changed. Those that are to be given up wait in `_doomed`."""
        touched = self._prerequisites.touched
        looked = list(touched)[:AT_ONCE]
        events = {task_id: event for task_id in looked if (event := self._follow(task_id, touched[task_id]))}
        for task_id in looked:
            del touched[task_id]
        try:
            goes_on = {key: (event, _cause(event)) for key, event in events.items() if not isinstance(event, GaveUp)}
            if goes_on:
                self._ledger.apply_all(goes_on)
        except StateError:
            touched |= dict.fromkeys(looked)
            raise
        self._doomed |= {key: None for key, event in events.items() if isinstance(event, GaveUp)}

    async def _keep_working(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            with guarded("tasks that wait for others"):
                if self.work():
                    self._wake.set()
            await asyncio.sleep(0)  # others have their turn


def _cause(event: TaskEvent) -> str:
    if isinstance(event, RequirementMet):
        return _PARTLY
    if not isinstance(event, BlockedBy):
        return _MET
    return _IMPOSSIBLE if event.reason else _POSSIBLE


def _earlier(tasks: Sequence[Task], number: int, wanted: int) -> str:
    """The id of a task of the same request; only those before this one can be named, so there are no cycles."""
    if wanted > number:
        raise UsageError(f"#{wanted} is not a task before this one, which is #{number + 1} of the request")
    return tasks[wanted - 1].id


def _whole(batch: str, members: Sequence[str], wanted: Requirement) -> Requirement:
    """The requirement for all tasks of a batch."""
    return Requirement(batch, wanted.state, batch=True, members=len(members))


def _paired(batch: str, members: Sequence[str], wanted: Requirement, number: int, tasks: int) -> Requirement:
    """The requirement for the one of a batch that stands where the task stands in its request."""
    if len(members) != tasks:
        raise UsageError(
            f"--each pairs tasks one to one, but this request has {tasks} and batch {batch} has {len(members)}; "
            "use as many, or omit --each"
        )
    return Requirement(members[number], wanted.state)
