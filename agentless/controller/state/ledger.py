"""The ledger: the only place where tasks change. A change is on disk before it is published."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import orjson

from agentless.controller.state.event_bus import EventBus, News, TaskAdopted, TaskChanged, TaskForgotten
from agentless.controller.state.task_stores import TaskStores
from agentless.controller.state.tasks import Tasks
from agentless.errors import Refused, StateError
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.task import Blocked, Ended, Task, Waiting
from agentless.model.tasks.task_event import Adopted, Dated, Delayed, Queued, RequirementMet, StopAsked, TaskEvent
from agentless.model.tasks.task_id import first_try, next_try
from agentless.model.usage.spent import GpuActivity
from agentless.model.view import TaskView
from agentless.ports import Clock
from agentless.rules.tasks.gangs.gangs import is_mate, mates
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.retry import another_try, is_last_try, is_requeued, next_of
from agentless.stores.records.history import EventRow

DROPPED = ("removed", "refused")
"""Names of the events by which a task is dropped."""
_QUIET = (Dated, RequirementMet)
"""Events that only say what can be found out again: nobody is told, and the next write takes them along."""


class Views(Protocol):
    """Builds the published form of tasks."""

    def view(self, task: Task) -> TaskView:
        """The task as it is published."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of a task by an event, and its cause."""

    old: Task
    event: TaskEvent
    cause: str
    new: Task

    @property
    def ends(self) -> bool:
        return isinstance(self.new.status, Ended)

    @property
    def matters(self) -> bool:
        """Whether it has to be on disk before anybody hears of it."""
        if isinstance(self.event, _QUIET):
            return False
        return self.new != self.old or isinstance(self.event, (Adopted, Queued, Delayed))


class Ledger:
    """Changes tasks, and records what has happened. `ended` counts the tasks that ended since the start, by state.

    Each change goes on the bus after it is on disk: as `TaskChanged`, and as news with the task as `views` has it.
    """

    def __init__(self, tasks: Tasks, stores: TaskStores, views: Views, bus: EventBus, clock: Clock) -> None:
        self.tasks = tasks
        self.stores = stores
        self.ended: Counter[str] = Counter()
        self._views = views
        self._bus = bus
        self._clock = clock
        self._leftover: set[str] = set()  # ended, and the state file has them still
        self._unsaved: set[str] = set()  # what the state file does not know of these yet: a date, a stop
        self._unrecorded: list[EventRow] = []
        for task in stores.state.load().values():
            # A crash between the two stores leaves a task in both.
            if stores.history.has(task.id):
                self._leftover.add(task.id)
            else:
                tasks.put(task)
                self._complete(task)
        for task_id in stores.secrets.tasks():
            if task_id not in tasks.live:
                stores.secrets.remove(task_id)
        self.flush()

    def add(self, task: Task, event: TaskEvent, cause: str) -> Task:
        """Add a new task with its first event; it is on disk before this returns."""
        return self.add_all([(task, event)], cause)[0]

    def add_all(self, begun: Sequence[tuple[Task, TaskEvent]], cause: str) -> list[Task]:
        """Add new tasks, each with its first event, in one write: all or none.

        Raises Refused for an id that exists: replacing it would lose the task whose container runs.
        """
        for task, _ in begun:
            if self.tasks.knows(task.id):
                raise Refused(f"task {task.id} already exists")
        return self._begin(begun, cause)

    def revive(self, ended: Task, event: TaskEvent, cause: str) -> None:
        """Move an ended task out of the history: its container runs again."""
        self._begin([(ended, event)], cause)
        with self.stores.writing("history"):
            self.stores.history.revive(ended.id)

    def _begin(self, begun: Sequence[tuple[Task, TaskEvent]], cause: str) -> list[Task]:
        for task, _ in begun:
            self.tasks.put(task)
        try:
            return self.apply_all({task.id: (event, cause) for task, event in begun})
        except BaseException:
            for task, _ in begun:
                self.tasks.drop(task.id)
            raise

    def apply(self, task_id: str, event: TaskEvent, cause: str) -> Task:
        """Apply an event with its cause; the new state is on disk before it is published.

        Raises IllegalMove or StateError; then nothing has changed. A stop is always possible: if it cannot be
        written now, it holds in memory and is part of the next write.
        """
        try:
            return self.apply_all({task_id: (event, cause)})[0]
        except StateError:
            if not isinstance(event, StopAsked):
                raise
            return self._hold_stop(task_id, event, cause)

    def _hold_stop(self, task_id: str, asked: StopAsked, cause: str) -> Task:
        """Keep a stop that cannot be written. A waiting task does not end yet, but will not start."""
        now, old = self._clock.now(), self.tasks.live[task_id]
        waits = isinstance(old.status, Waiting)
        new = replace(old, stop=asked.how, stop_reason=asked.reason) if waits else apply(old, asked, now)
        self._unsaved.add(task_id)
        self.tasks.put(new)
        self._bus.emit(TaskChanged(old, new))
        self.tell(self._news(new, _words(asked), cause, now), task_id)
        return new

    def apply_all(self, events: Mapping[str, tuple[TaskEvent, str]]) -> list[Task]:
        """Apply one event to each of several tasks, in one write: all or none.

        The end of a task is written by itself, so it must be the only event.
        """
        now = self._clock.now()
        moves = [(self.tasks.live[key], event, cause) for key, (event, cause) in events.items()]
        changes = [_Change(old, event, cause, apply(old, event, now)) for old, event, cause in moves]
        tries = [self._try_again(change, now) for change in changes]
        if any(change.ends for change in changes):
            [change] = changes
            self._end(change, now)
        else:
            self._keep(changes, now)
        for change, again in zip(changes, tries, strict=True):
            word = "requeued" if is_requeued(change.new) else "retried"
            for task in again:
                self.tell(self._news(task, word, f"{change.new.id} is {change.new.state}", now), task.id)
            if again and change.new.live:
                self.apply(change.new.id, StopAsked("kill"), f"retried as {next_try(change.new.id)}")
        return [self.tasks.live.get(change.new.id, change.new) for change in changes]

    def _end(self, change: _Change, now: float) -> None:
        task_id, news = change.new.id, self._news(change.new, _words(change.event), change.cause, now)
        record, load = (now, task_id, orjson.dumps(news)), self.tasks.loads.get(task_id, GpuActivity())
        if isinstance(change.event, StopAsked) and (job := change.new.spec.job) and job.workflow:
            self.stores.record_stops(first_try(task_id))  # or its label would bring it back after the state was lost
        with self.stores.writing("history"):
            self.stores.history.add(change.new, [*self._unrecorded, record], load)
        # It has happened. The next write of the state file tidies up there, or the next `flush`.
        self._unrecorded.clear()
        self._leftover.add(task_id)
        self.tasks.drop(task_id)
        self._unsaved.discard(task_id)
        self.ended[change.new.state] += 1
        self._bus.emit(TaskChanged(change.old, change.new))
        self.stores.secrets.remove(task_id)
        self._record()
        self._bus.publish(news)

    def _keep(self, changes: Iterable[_Change], now: float) -> None:
        if changed := [change.new for change in changes if change.matters]:
            saved = {task.id for task in changed}
            unsaved = [self.tasks.live[key] for key in self._unsaved - saved]
            self._leftover -= saved  # what had ended may live again
            with self.stores.writing("state"):
                self.stores.state.save(*changed, *unsaved, gone=self._leftover)
            self._unsaved.clear()
            self._leftover.clear()
        for change in changes:
            self.tasks.put(change.new)
            self._bus.emit(TaskChanged(change.old, change.new))
            if change.new.container and is_last_try(change.new):
                self.stores.secrets.remove(change.new.id)  # no launch of it will ever need them again
            if isinstance(change.event, _QUIET):
                self._unsaved.add(change.new.id)
        for change in changes:
            if not isinstance(change.event, _QUIET):
                self.tell(self._news(change.new, _words(change.event), change.cause, now), change.new.id)

    def _try_again(self, change: _Change, now: float) -> list[Task]:
        """Add the next try before the end of this one is on disk: a crash in between repeats this.

        Of a gang, it is the next try of all members.
        """
        found = another_try(change.old, change.new, now)
        if found is None:
            return []
        task, delay = found
        tries = [task] if task.spec.gang is None else self._next_of_gang(change.new, task.spec.gang, now)
        fresh = [apply(each, delay, now) for each in tries if not self.tasks.knows(each.id)]
        if fresh:
            with self.stores.writing("state"):
                self.stores.state.save(*fresh)
            for each in fresh:
                self.tasks.put(each)
        if task.spec.gang:
            values = self.stores.secrets.get(change.new.id)
            for each in fresh:
                self.stores.secrets.put(each.id, values)
        else:
            self.stores.secrets.hand_on(change.new.id, task.id)
        return fresh

    def _next_of_gang(self, ended: Task, gang: Gang, now: float) -> list[Task]:
        """The next tries of all members; none if one of them was removed."""
        known = mates(ended, self.tasks.find)
        return [next_of(mate, ended, now) for mate in known] if len(known) == gang.size else []

    def adopt(self, task: Task, cause: str) -> None:
        """Add a task that was found in a container's labels."""
        if task.spec.gang is not None and not is_mate(task, task):  # forged: it is in a gang of others
            task = replace(task, spec=replace(task.spec, gang=None))
        self._bus.emit(TaskAdopted(task))
        self.add(task, Adopted(), cause)

    def was_forgotten(self, task_id: str) -> bool:
        """Whether a task was ever dropped: then a container with its labels is not adopted."""
        return self._last_event(task_id).get("event") in DROPPED

    def forget(self, task: Task, word: str, cause: str) -> TaskView:
        """Drop a task with everything but its events; `word`, one of `DROPPED`, names the last of them.

        Returns the task as it was published last.
        """
        return self.forget_all([task], word, cause)[0]

    def forget_all(self, tasks: Sequence[Task], word: str, cause: str) -> list[TaskView]:
        """Drop tasks likewise, in one write: all or none."""
        now, views = self._clock.now(), [self._views.view(task) for task in tasks]
        news = [_news(task, view, word, cause, now) for task, view in zip(tasks, views, strict=True)]
        ids = [task.id for task in tasks]
        # Of what is removed, nobody can find out that it was as required.
        unsaved = [each for key in self._unsaved if isinstance((each := self.tasks.live[key]).status, Blocked)]
        if unsaved or any(task_id in self.tasks.live or task_id in self._leftover for task_id in ids):
            with self.stores.writing("state"):
                self.stores.state.save(*unsaved, gone=ids)
        records = [(now, task_id, orjson.dumps(each)) for task_id, each in zip(ids, news, strict=True)]
        with self.stores.writing("history"):
            self.stores.history.remove(ids, [*self._unrecorded, *records])
        self._unrecorded.clear()
        jobs = [first_try(task.id) for task in tasks if task.spec.job and task.spec.job.workflow]
        if len(jobs) > 1:
            with suppress(StateError):  # tried again later
                self.stores.record_stops(*jobs)
        for task, said in zip(tasks, news, strict=True):
            self._unsaved.discard(task.id)
            self.tasks.forget(task.id)
            self.stores.secrets.remove(task.id)
            self._bus.emit(TaskForgotten(task))
            self._bus.publish(said)
        return views

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until the condition holds; it is checked after all changes."""
        await self._bus.until(is_so)

    def publish(self, task: Task, event: str, cause: str) -> None:
        """Publish an event that does not change the task."""
        self.tell(self._news(task, event, cause, self._clock.now()), task.id)

    def _news(self, task: Task, event: str, cause: str, now: float) -> News:
        return _news(task, self._views.view(task), event, cause, now)

    def tell(self, news: News, task: str = "") -> None:
        """Record and publish news; what cannot be recorded now is recorded later."""
        self._unrecorded.append((news["at"], task, orjson.dumps(news)))
        self._record()
        self._bus.publish(news)

    def flush(self) -> None:
        """Write everything that is pending, and retry a store that failed."""
        with suppress(StateError), self.stores.writing("state"):
            if self._leftover:
                self.stores.state.remove(*self._leftover)
                self._leftover.clear()
            elif "state" in self.stores.troubles:
                self._save_unsaved()
        if self.stores.proof and self.stores.proof.pending:
            with suppress(StateError):
                self.stores.record_stops()
        self._record()
        if "history" in self.stores.troubles and not self._unrecorded:
            with suppress(StateError), self.stores.writing("history"):
                self.stores.history.touch()

    def examine_stores(self) -> str | None:
        """Try to write both stores; returns the problem, None if there is none."""
        with suppress(StateError), self.stores.writing("state"):
            self._save_unsaved()
        with suppress(StateError), self.stores.writing("history"):
            self.stores.history.touch()
        with suppress(StateError):
            self.stores.record_stops()
        return self.stores.trouble

    def _save_unsaved(self) -> None:
        self.stores.state.save(*(self.tasks.live[key] for key in self._unsaved))
        self._unsaved.clear()

    def _record(self) -> None:
        if self._unrecorded:
            with suppress(StateError), self.stores.writing("history"):
                while self._unrecorded:
                    self.stores.history.record(*self._unrecorded[0])
                    self._unrecorded.pop(0)

    def _complete(self, task: Task) -> None:
        """Record the event that an earlier controller could not record after saving the task."""
        last = self._last_event(task.id)
        if not last or last["task"]["state"] != task.state:
            self.publish(task, "recalled", "the previous controller stopped while writing this")

    def _last_event(self, task_id: str) -> dict[str, Any]:
        """The last recorded event of a task, empty if there is none."""
        last = self.stores.history.events(self.stores.history.last_events(1, 0.0, task_id), 1, task_id)
        return orjson.loads(last[0][1]) if last else {}

    def note(self, event: str, cause: str) -> None:
        """Record something about the controller itself."""
        self.tell({"kind": "controller", "at": self._clock.now(), "event": event, "cause": cause})


def _news(task: Task, view: TaskView, event: str, cause: str, now: float) -> News:
    news = {"kind": "task", "at": now, "event": event, "cause": cause, "task": _fields(view)}
    return news | {"request": task.request} if task.request else news


def _words(event: TaskEvent) -> str:
    """`stop-asked` for StopAsked."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()


def _fields(view: TaskView) -> dict[str, Any]:
    """What `asdict` gives, without a copy of each value: orjson writes those that are dataclasses as they are."""
    return {field.name: getattr(view, field.name) for field in fields(view)}
