"""The tasks of this controller in memory. Everybody reads them; only the ledger changes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from agentless.controller.state.waiters import Waiters
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.tasks.task import Assigning, Task
from agentless.model.tasks.task_id import attempt_of, first_try
from agentless.model.usage.idle import IdleGpus
from agentless.model.usage.spent import GpuActivity
from agentless.rules.tasks.ending import Ending
from agentless.stores.records.history import History

FORGOTTEN = 1000
"""Dropped tasks that are remembered as such; answers of nodes are in flight for seconds only."""


class Tasks:
    """The `live` tasks by id, and the history of the ended ones.

    `owner` runs this controller; `controller` is its id in the labels of its containers. `launching` are the tasks
    whose launch is in progress, `forgotten` the last that were dropped. Findings about live tasks, by id: `intruders`
    are foreign processes on their GPUs, `idle` their unused GPUs, `loads` how busy their GPUs were, `endings` when a
    VPS stops by itself. `vps` are the tasks that are a VPS now, by its name. `kept` are allocations that nobody else
    gets while a container is started again or replaced. `waiters` are the blocked ones, by what they wait for.
    """

    def __init__(self, owner: str, controller: str, history: History) -> None:
        self.owner = owner
        self.controller = controller
        self.history = history
        self.live: dict[str, Task] = {}
        self.forgotten: dict[str, None] = {}
        self.launching: set[str] = set()
        self.intruders: dict[str, tuple[GpuProcess, ...]] = {}
        self.idle: dict[str, IdleGpus] = {}
        self.loads: dict[str, GpuActivity] = {}
        self.endings: dict[str, Ending] = {}
        self.vps: dict[str, str] = {}
        self.kept: dict[str, Task] = {}
        self.waiters = Waiters()
        self._retried: dict[str, str] = {}  # by the first try, the last one of those live that is another
        self._batches: defaultdict[str, dict[str, None]] = defaultdict(dict)  # the live tasks by batch
        self._placed: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by node; some may be elsewhere by now

    def knows(self, task_id: str) -> bool:
        """Whether this controller has the task, live or ended."""
        return task_id in self.live or self.history.has(task_id)

    def find(self, task_id: str) -> Task | None:
        """The task with exactly this id, live or ended, if this controller has it."""
        return self.live.get(task_id) or self.history.get(task_id)

    def is_vps(self, task: Task) -> bool:
        """Whether this is what a VPS is now, not a container that was replaced by another."""
        return task.spec.traits.comes_back and self.vps.get(task.spec.name or "") == task.id

    def last_live(self, first: str) -> str | None:
        """The id of the last try of a task that is live, if any is."""
        return self._retried.get(first) or (first if first in self.live else None)

    @contextmanager
    def keeping(self, task: Task) -> Iterator[None]:
        """Keep the allocation of a task, also after its end."""
        if task.placement:
            self.kept[task.id] = replace(task, status=Assigning(task.placement, 0.0))
        try:
            yield
        finally:
            self.kept.pop(task.id, None)

    def remembered(self, task_id: str) -> tuple[bool, str | None]:
        """Whether this controller has the task, live or ended, and the id of its container, if known."""
        task = self.live.get(task_id)
        return (True, task.container) if task else self.history.container(task_id)

    def on_node(self, node: str) -> list[Task]:
        """The live tasks that are placed on a node."""
        known = [self.live[key] for key in self._placed[node] if key in self.live]
        found = [task for task in known if task.placement and task.placement.node == node]
        self._placed[node] = {task.id: None for task in found}
        return found

    def in_batch(self, batch: str) -> list[Task]:
        """The live tasks of a batch."""
        return [self.live[key] for key in self._batches.get(batch, ())]

    # ------------------------------------------------------------------ the ledger's

    def put(self, task: Task) -> None:
        """Set the current value of a live task."""
        self.live[task.id] = task
        self._batches[task.batch][task.id] = None
        self.waiters.put(task)
        if task.attempt > 1:
            first = first_try(task.id)
            self._retried[first] = max(task.id, self._retried.get(first, task.id), key=attempt_of)
        if task.placement:
            self._placed[task.placement.node][task.id] = None

    def drop(self, task_id: str) -> None:
        """Remove a task that is not live any more, with its findings."""
        if task := self.live.pop(task_id, None):
            del self._batches[task.batch][task_id]
            if not self._batches[task.batch]:
                del self._batches[task.batch]
        self.waiters.drop(task_id)
        if self._retried.get(first := first_try(task_id)) == task_id:
            del self._retried[first]
        self.intruders.pop(task_id, None)
        self.loads.pop(task_id, None)

    def forget(self, task_id: str) -> None:
        """Remove a dropped task. It is kept in `forgotten`: an answer in flight may still have its container."""
        self.drop(task_id)
        self.forgotten[task_id] = None
        while len(self.forgotten) > FORGOTTEN:
            del self.forgotten[next(iter(self.forgotten))]
