"""The ledger: the only place where tasks change. A change is on disk before anybody hears of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import orjson

from agentless.controller.guarded import guarded
from agentless.controller.state.events import EventBus, News
from agentless.errors import Refused, StateError
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.tasks.event import Adopted, Dated, Delayed, Event, Queued, StopAsked
from agentless.model.tasks.task import Ended, Lost, Pending, Scheduled, Task
from agentless.model.tasks.task_id import next_try
from agentless.model.usage.idle import Idle
from agentless.model.usage.spent import Load
from agentless.model.view import OutputView, TaskView
from agentless.ports import Clock
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.retry import another_try
from agentless.rules.views.publish import task_view
from agentless.stores.records.history import EventRow, History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore

DROPPED = ("removed", "refused")
"""What the events call the end of all memory of a task."""
FORGOTTEN = 1000
"""So many of the tasks that were dropped are remembered as such: answers are on their way for seconds only."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What an event makes of a task, and who says so."""

    old: Task
    event: Event
    cause: str
    new: Task

    @property
    def ends(self) -> bool:
        return isinstance(self.new.status, Ended)

    @property
    def matters(self) -> bool:
        """Whether it has to be on disk before anybody hears of it."""
        if isinstance(self.event, Dated):
            return False
        return self.new != self.old or isinstance(self.event, (Adopted, Queued, Delayed))


class Ledger:
    """All live tasks, what has ended, and what has happened.

    `troubles` are why a store could not be written last, in words, each until a write of its own is good.
    `intruders` are by task, see `model/cluster.Gpu`; `forgotten` are the tasks that were dropped last; `outlook` tells
    of a task that waits when it will start, and `outputs` of what it brings back.
    `idle` are the GPUs that are not used, and `loads` how busy they were, by task. `ended` counts the tasks that have
    since the start, by state. `changed` are told of each change once it is on disk: the task before and after it.
    """

    def __init__(
        self, owner: str, store: TaskStore, history: History, secrets: SecretStore, hub: EventBus, clock: Clock
    ) -> None:
        self.owner = owner
        self.history = history
        self.secrets = secrets
        self.hub = hub
        self.clock = clock
        self.tasks: dict[str, Task] = {}
        self.troubles: dict[str, str] = {}
        self.intruders: dict[str, tuple[GpuProcess, ...]] = {}
        self.idle: dict[str, Idle] = {}
        self.loads: dict[str, Load] = {}
        self.ended: Counter[str] = Counter()
        self.forgotten: dict[str, None] = {}
        self.outlook: Callable[[Task], Outlook] = lambda _: Outlook()
        self.outputs: Callable[[Task], tuple[OutputView, ...]] = lambda _: ()
        self.changed: list[Callable[[Task, Task], None]] = []
        self._placed: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by node; some may be elsewhere by now
        self._leftover: set[str] = set()  # ended, and the state file has them still
        self._unsaved: set[str] = set()  # what the state file does not know of these yet: a date, a stop
        self._unrecorded: list[EventRow] = []
        self._store = store
        for task in store.load().values():
            # A crash between the two stores leaves a task in both.
            if history.has(task.id):
                self._leftover.add(task.id)
            else:
                self._remember(task)
                self._complete(task)
        for task_id in secrets.tasks():
            if task_id not in self.tasks:
                secrets.remove(task_id)
        self.flush()

    @property
    def controller(self) -> str:
        """What names this controller's state on the containers that it starts."""
        return self._store.controller

    @property
    def trouble(self) -> str | None:
        """Why stores could not be written last, None when they could."""
        return "; ".join(self.troubles.values()) or None

    @contextmanager
    def writing(self, store: Literal["state", "history"]) -> Iterator[None]:
        """A write into a store, which is in trouble from a failed one to a good one."""
        try:
            yield
        except StateError as error:
            self.troubles[store] = str(error)
            raise
        self.troubles.pop(store, None)

    def view(self, task: Task) -> TaskView:
        """The task as it is published."""
        outlook = self.outlook(task) if isinstance(task.status, Pending) else Outlook()
        later = next_try(task.id) if isinstance(task.status, (Ended, Lost)) else None
        return task_view(
            task,
            self.intruders.get(task.id, ()),
            outlook,
            mine=task.owner == self.owner,
            retried_as=later if later and self.knows(later) else None,
            idle=self.idle.get(task.id),
            now=self.clock.now(),
            outputs=self.outputs(task) if task.spec.outputs else (),
        )

    def knows(self, task_id: str) -> bool:
        """Whether a task is remembered here, live or ended."""
        return task_id in self.tasks or self.history.has(task_id)

    def remembered(self, task_id: str) -> tuple[bool, str | None]:
        """Whether a task is remembered here, live or ended, and the id of its container, None if none is known."""
        task = self.tasks.get(task_id)
        return (True, task.container) if task else self.history.container(task_id)

    def add(self, task: Task, event: Event, cause: str) -> Task:
        """Take in a new task with its first event; it is on disk before this returns."""
        return self.add_all([(task, event)], cause)[0]

    def add_all(self, begun: Sequence[tuple[Task, Event]], cause: str) -> list[Task]:
        """Take in new tasks, each with its first event, in one write: all of them or none.

        Raises Refused for one that is known: what its container does would be lost with the task that it belongs to.
        """
        for task, _ in begun:
            if self.knows(task.id):
                raise Refused(f"task {task.id} is there already")
        return self._begin(begun, cause)

    def revive(self, ended: Task, event: Event, cause: str) -> None:
        """Take an ended task out of the history: its container lives again."""
        self._begin([(ended, event)], cause)
        with self.writing("history"):
            self.history.remove(ended.id)

    def _begin(self, begun: Sequence[tuple[Task, Event]], cause: str) -> list[Task]:
        self.tasks.update({task.id: task for task, _ in begun})
        try:
            return self.apply_all({task.id: (event, cause) for task, event in begun})
        except BaseException:
            for task, _ in begun:
                self.tasks.pop(task.id, None)
            raise

    def apply(self, task_id: str, event: Event, cause: str) -> Task:
        """One event and who says so: the new state is on disk before anybody hears of it.

        Raises IllegalMove or StateError; then nothing has changed. To end work is always possible: a stop that cannot
        be written holds all the same, and the next write takes it along.
        """
        try:
            return self.apply_all({task_id: (event, cause)})[0]
        except StateError:
            if not isinstance(event, StopAsked):
                raise
            return self._keep_in_mind(task_id, event, cause)

    def _keep_in_mind(self, task_id: str, asked: StopAsked, cause: str) -> Task:
        """A stop that cannot be written. Of a task that waits it is not the end yet, but it will not start."""
        now, old = self.clock.now(), self.tasks[task_id]
        waits = isinstance(old.status, (Scheduled, Pending))
        new = replace(old, stop=asked.how, stop_reason=asked.reason) if waits else apply(old, asked, now)
        self._unsaved.add(task_id)
        self._remember(new)
        self._tell_changed(_Change(old, asked, cause, new))
        self.tell(self._news(new, _words(asked), cause, now), task_id)
        return new

    def apply_all(self, events: Mapping[str, tuple[Event, str]]) -> list[Task]:
        """Likewise one event each of several tasks, in one write of the state: all of them or none.

        An end is written by itself, so it is the only event that it comes with.
        """
        now = self.clock.now()
        moves = [(self.tasks[key], event, cause) for key, (event, cause) in events.items()]
        changes = [_Change(old, event, cause, apply(old, event, now)) for old, event, cause in moves]
        tries = [self._try_again(change, now) for change in changes]
        if any(change.ends for change in changes):
            [change] = changes
            self._end(change, now)
        else:
            self._keep(changes, now)
        for change, again in zip(changes, tries, strict=True):
            if again:
                self.tell(self._news(again, "retried", f"{change.new.id} is {change.new.state}", now), again.id)
            if again and change.new.live:
                self.apply(change.new.id, StopAsked("kill"), f"it goes on as {again.id}")
        return [self.tasks.get(change.new.id, change.new) for change in changes]

    def _end(self, change: _Change, now: float) -> None:
        task_id, news = change.new.id, self._news(change.new, _words(change.event), change.cause, now)
        record = (now, task_id, orjson.dumps(news))
        with self.writing("history"):
            self.history.add(change.new, [*self._unrecorded, record], self.loads.get(task_id, Load()))
        # It has happened. The next write of the state file tidies up there, or the next `flush`.
        self._unrecorded.clear()
        self._leftover.add(task_id)
        del self.tasks[task_id]
        self._unsaved.discard(task_id)
        self.intruders.pop(task_id, None)
        self.loads.pop(task_id, None)
        self.ended[change.new.state] += 1
        self._tell_changed(change)
        self.secrets.remove(task_id)
        self._record()
        self.hub.publish(news)

    def _keep(self, changes: Iterable[_Change], now: float) -> None:
        if changed := [change.new for change in changes if change.matters]:
            saved = {task.id for task in changed}
            unsaved = [self.tasks[key] for key in self._unsaved - saved]
            self._leftover -= saved  # what had ended may live again
            with self.writing("state"):
                self._store.save(*changed, *unsaved, gone=self._leftover)
            self._unsaved.clear()
            self._leftover.clear()
        for change in changes:
            self._remember(change.new)
            self._tell_changed(change)
            if change.new.container and change.new.attempt > change.new.spec.terms.retries:
                self.secrets.remove(change.new.id)  # no launch of it will ever need them again
            if isinstance(change.event, Dated):
                # Only known better: the next write takes it along, or the node says it again.
                self._unsaved.add(change.new.id)
        for change in changes:
            if not isinstance(change.event, Dated):
                self.tell(self._news(change.new, _words(change.event), change.cause, now), change.new.id)

    def _tell_changed(self, change: _Change) -> None:
        for told in self.changed:
            with guarded(f"task {change.new.id}: its change"):
                told(change.old, change.new)

    def _remember(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.placement:
            self._placed[task.placement.node][task.id] = None

    def on_node(self, node: str) -> list[Task]:
        """The live tasks that are placed on a node."""
        known = [self.tasks[key] for key in self._placed[node] if key in self.tasks]
        found = [task for task in known if task.placement and task.placement.node == node]
        self._placed[node] = {task.id: None for task in found}
        return found

    def _try_again(self, change: _Change, now: float) -> Task | None:
        """Take in the next try, before the end of this one is on disk: what crashes in between does it once more."""
        found = another_try(change.old, change.new, now)
        if found is None:
            return None
        task, delay = found
        fresh = not self.knows(task.id)
        if fresh:
            task = apply(task, delay, now)
            with self.writing("state"):
                self._store.save(task)
            self._remember(task)
        self.secrets.hand_on(change.new.id, task.id)
        return task if fresh else None

    def adopt(self, task: Task, cause: str) -> None:
        """Remember a task that a container carries."""
        self.add(task, Adopted(), cause)

    def was_forgotten(self, task_id: str) -> bool:
        """Whether a task was dropped, however long ago: then a container with its labels is not it any more."""
        return self._last_event(task_id).get("event") in DROPPED

    def forget(self, task: Task, word: str, cause: str) -> None:
        """Drop a task, and all that is remembered of it but its events; `word`, of `DROPPED`, is what they call it."""
        now = self.clock.now()
        news = self._news(task, word, cause, now)
        if task.id in self.tasks or task.id in self._leftover:
            with self.writing("state"):
                self._store.remove(task.id)
        with self.writing("history"):
            self.history.remove(task.id, [*self._unrecorded, (now, task.id, orjson.dumps(news))])
        self._unrecorded.clear()
        self._unsaved.discard(task.id)
        self.forgotten[task.id] = None  # a container of it may still be in an answer that is on its way
        while len(self.forgotten) > FORGOTTEN:
            del self.forgotten[next(iter(self.forgotten))]
        self.tasks.pop(task.id, None)
        self.loads.pop(task.id, None)
        self.secrets.remove(task.id)
        self.hub.publish(news)

    def publish(self, task: Task, event: str, cause: str) -> None:
        """Tell that something has happened to a task that does not change it."""
        self.tell(self._news(task, event, cause, self.clock.now()), task.id)

    def _news(self, task: Task, event: str, cause: str, now: float) -> News:
        told = {"kind": "task", "at": now, "event": event, "cause": cause, "task": _fields(self.view(task))}
        return told | {"request": task.request} if task.request else told

    def tell(self, news: News, task: str = "") -> None:
        """Record and publish. What has happened has happened: news that the disk has no room for are kept for later."""
        self._unrecorded.append((news["at"], task, orjson.dumps(news)))
        self._record()
        self.hub.publish(news)

    def flush(self) -> None:
        """Write what was left for later, or had no room so far, and once more what was in trouble."""
        with suppress(StateError), self.writing("state"):
            if self._leftover:
                self._store.remove(*self._leftover)
                self._leftover.clear()
            elif "state" in self.troubles:
                self._save_unsaved()
        self._record()
        if "history" in self.troubles and not self._unrecorded:
            with suppress(StateError), self.writing("history"):
                self.history.touch()

    def examine_stores(self) -> str | None:
        """Write both stores once more; why that cannot be done, None when it can."""
        with suppress(StateError), self.writing("state"):
            self._save_unsaved()
        with suppress(StateError), self.writing("history"):
            self.history.touch()
        return self.trouble

    def _save_unsaved(self) -> None:
        self._store.save(*(self.tasks[key] for key in self._unsaved))
        self._unsaved.clear()

    def _record(self) -> None:
        if self._unrecorded:
            with suppress(StateError), self.writing("history"):
                while self._unrecorded:
                    self.history.record(*self._unrecorded[0])
                    self._unrecorded.pop(0)

    def _complete(self, task: Task) -> None:
        """Make up for an event that a controller before this one had no time to record after it saved the task."""
        last = self._last_event(task.id)
        if not last or last["task"]["state"] != task.state:
            self.publish(task, "recalled", "the controller before this one ended while it wrote this")

    def _last_event(self, task_id: str) -> dict[str, Any]:
        """What was recorded last of a task, empty when nothing was."""
        last = self.history.events(self.history.last_events(1, 0.0, task_id), 1, task_id)
        return orjson.loads(last[0][1]) if last else {}

    def note(self, event: str, cause: str) -> None:
        """Record something about the controller itself."""
        self.tell({"kind": "controller", "at": self.clock.now(), "event": event, "cause": cause})


def _words(event: Event) -> str:
    """`stop-asked` for StopAsked."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()


def _fields(view: TaskView) -> dict[str, Any]:
    """What `asdict` gives, without a copy of each value: orjson writes those that are dataclasses as they are."""
    return {field.name: getattr(view, field.name) for field in fields(view)}
