"""The ledger: the only place where tasks change. A change is on disk before anybody hears of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict

import orjson

from agentless.controller.hub import Hub, News
from agentless.errors import StateError
from agentless.model.event import Adopted, Dated, Delayed, Event, Queued, StopAsked
from agentless.model.gpu import GpuProcess
from agentless.model.idle import Idle
from agentless.model.task import Ended, Lost, Pending, Task, next_try
from agentless.model.view import TaskView
from agentless.ports import Clock
from agentless.rules.lifecycle import apply
from agentless.rules.plan import Outlook
from agentless.rules.publish import task_view
from agentless.rules.retry import another_try
from agentless.stores.history import EventRow, History
from agentless.stores.secrets import SecretStore
from agentless.stores.tinydb import TaskStore

FORGOTTEN = 1000
"""So many of the tasks that were dropped are remembered as such: answers are on their way for seconds only."""


class Ledger:
    """All live tasks, what has ended, and what has happened.

    `trouble` is why something could not be written last, in words; `intruders` are by task, see `model/cluster.Gpu`;
    `forgotten` are the tasks that were dropped last; `outlook` tells of a task that waits when it will start.
    `idle` are the GPUs that are not used, by task. `changed` is told of each change once it is on disk: the task before
    and after it.
    """

    def __init__(
        self, owner: str, store: TaskStore, history: History, secrets: SecretStore, hub: Hub, clock: Clock
    ) -> None:
        self.owner = owner
        self.history = history
        self.secrets = secrets
        self.hub = hub
        self.clock = clock
        self.tasks: dict[str, Task] = {}
        self.trouble: str | None = None
        self.intruders: dict[str, tuple[GpuProcess, ...]] = {}
        self.idle: dict[str, Idle] = {}
        self.forgotten: dict[str, None] = {}
        self.outlook: Callable[[Task], Outlook] = lambda _: Outlook()
        self.changed: Callable[[Task, Task], None] = lambda _, __: None
        self._leftover: set[str] = set()  # ended, and the state file has them still
        self._unrecorded: list[EventRow] = []
        self._store = store
        for task in store.load().values():
            # A crash between the two stores leaves a task in both.
            if history.has(task.id):
                self._leftover.add(task.id)
            else:
                self.tasks[task.id] = task
                self._complete(task)
        for task_id in secrets.tasks():
            if task_id not in self.tasks:
                secrets.remove(task_id)
        self.flush()

    @property
    def controller(self) -> str:
        """What names this controller's state on the containers that it starts."""
        return self._store.controller

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
        )

    def knows(self, task_id: str) -> bool:
        """Whether a task is remembered here, live or ended."""
        return task_id in self.tasks or self.history.has(task_id)

    def add(self, task: Task, event: Event, cause: str) -> Task:
        """Take in a new task with its first event; it is on disk before this returns."""
        self.tasks[task.id] = task
        try:
            return self.apply(task.id, event, cause)
        except BaseException:
            self.tasks.pop(task.id, None)
            raise

    def apply(self, task_id: str, event: Event, cause: str) -> Task:
        """One event and who says so: the new state is on disk before anybody hears of it.

        Raises IllegalMove or StateError; then nothing has changed.
        """
        old = self.tasks[task_id]
        now = self.clock.now()
        new = apply(old, event, now)
        again = self._try_again(old, new, now)
        news = self._news(new, _words(event), cause, now)
        if isinstance(new.status, Ended):
            self.history.add(new, [*self._unrecorded, (now, task_id, orjson.dumps(news))])
            # It has happened: what cannot be tidied up now is tidied up later.
            self._unrecorded.clear()
            self._leftover.add(task_id)
            del self.tasks[task_id]
            self.intruders.pop(task_id, None)
        else:
            if new != old or isinstance(event, (Adopted, Queued, Delayed)):
                self._store.save(new)
            self.tasks[task_id] = new
        self.changed(old, new)
        if not new.live or (new.container and new.attempt > new.spec.terms.retries):
            self.secrets.remove(task_id)  # no launch of it will ever need them again
        self.flush()
        if isinstance(new.status, Ended):
            self.hub.publish(news)
        elif not isinstance(event, Dated):  # with that nothing has happened, it is only known better
            self.tell(news, task_id)
        if again:
            self.tell(self._news(again, "retried", f"{new.id} is {new.state}", now), again.id)
        if again and new.live:
            return self.apply(task_id, StopAsked("kill"), f"it goes on as {again.id}")
        return new

    def _try_again(self, old: Task, new: Task, now: float) -> Task | None:
        """Take in the next try, before the end of this one is on disk: what crashes in between does it once more."""
        found = another_try(old, new, now)
        if found is None:
            return None
        task, delay = found
        fresh = not self.knows(task.id)
        if fresh:
            task = apply(task, delay, now)
            self._store.save(task)
            self.tasks[task.id] = task
        self.secrets.hand_on(new.id, task.id)
        return task if fresh else None

    def adopt(self, task: Task, cause: str) -> None:
        """Remember a task that a container carries."""
        self.add(task, Adopted(), cause)

    def forget(self, task: Task, word: str, cause: str) -> None:
        """Drop a task, and all that is remembered of it but its events; `word` is what they call it."""
        self._store.remove(task.id)
        self.forgotten[task.id] = None  # a container of it may still be in an answer that is on its way
        while len(self.forgotten) > FORGOTTEN:
            del self.forgotten[next(iter(self.forgotten))]
        self.tasks.pop(task.id, None)
        self.history.remove(task.id)
        self.secrets.remove(task.id)
        self.publish(task, word, cause)

    def publish(self, task: Task, event: str, cause: str) -> None:
        """Tell that something has happened to a task that does not change it."""
        self.tell(self._news(task, event, cause, self.clock.now()), task.id)

    def _news(self, task: Task, event: str, cause: str, now: float) -> News:
        return {"kind": "task", "at": now, "event": event, "cause": cause, "task": asdict(self.view(task))}

    def tell(self, news: News, task: str = "") -> None:
        """Record and publish. What has happened has happened: news that the disk has no room for are kept for later."""
        self._unrecorded.append((news["at"], task, orjson.dumps(news)))
        self.flush()
        self.hub.publish(news)

    def flush(self) -> None:
        """Write what there was no room for so far; `trouble` says whether there is now."""
        try:
            for task_id in list(self._leftover):
                self._store.remove(task_id)
                self._leftover.discard(task_id)
            while self._unrecorded:
                self.history.record(*self._unrecorded[0])
                self._unrecorded.pop(0)
            self.trouble = None
        except StateError as error:
            self.trouble = str(error)

    def _complete(self, task: Task) -> None:
        """Make up for an event that a controller before this one had no time to record after it saved the task."""
        last = self.history.events(self.history.last_events(1, 0.0, task.id), 1, task.id)
        if not last or orjson.loads(last[0][1])["task"]["state"] != task.state:
            self.publish(task, "recalled", "the controller before this one ended while it wrote this")

    def note(self, event: str, cause: str) -> None:
        """Record something about the controller itself."""
        self.tell({"kind": "controller", "at": self.clock.now(), "event": event, "cause": cause})


def _words(event: Event) -> str:
    """`stop-asked` for StopAsked."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(event).__name__).lower()
