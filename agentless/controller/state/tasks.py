"""The tasks that are known here, to be read; only the ledger changes them."""

from __future__ import annotations

from collections import defaultdict

from agentless.model.nodes.gpu import GpuProcess
from agentless.model.tasks.task import Task
from agentless.model.usage.idle import Idle
from agentless.model.usage.spent import Load
from agentless.stores.records.history import History

FORGOTTEN = 1000
"""So many of the tasks that were dropped are remembered as such: answers are on their way for seconds only."""


class Tasks:
    """The live tasks of one controller by id, and what has ended.

    `owner` is whose controller it is, and `controller` names its state on the containers that it starts.
    `forgotten` are the tasks that were dropped last, and `launching` those that a launch is under way for.
    What was found of live tasks is by id, too: `intruders` are processes of others on their GPUs, see
    `model/nodes/cluster.Gpu`, `idle` the GPUs that are not used, and `loads` how busy they were.
    """

    def __init__(self, owner: str, controller: str, history: History) -> None:
        self.owner = owner
        self.controller = controller
        self.history = history
        self.live: dict[str, Task] = {}
        self.forgotten: dict[str, None] = {}
        self.launching: set[str] = set()
        self.intruders: dict[str, tuple[GpuProcess, ...]] = {}
        self.idle: dict[str, Idle] = {}
        self.loads: dict[str, Load] = {}
        self._placed: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by node; some may be elsewhere by now

    def knows(self, task_id: str) -> bool:
        """Whether a task is remembered here, live or ended."""
        return task_id in self.live or self.history.has(task_id)

    def remembered(self, task_id: str) -> tuple[bool, str | None]:
        """Whether a task is remembered here, live or ended, and the id of its container, None if none is known."""
        task = self.live.get(task_id)
        return (True, task.container) if task else self.history.container(task_id)

    def on_node(self, node: str) -> list[Task]:
        """The live tasks that are placed on a node."""
        known = [self.live[key] for key in self._placed[node] if key in self.live]
        found = [task for task in known if task.placement and task.placement.node == node]
        self._placed[node] = {task.id: None for task in found}
        return found

    # ------------------------------------------------------------------ the ledger's

    def put(self, task: Task) -> None:
        """Remember a live task as it is now."""
        self.live[task.id] = task
        if task.placement:
            self._placed[task.placement.node][task.id] = None

    def drop(self, task_id: str) -> None:
        """Forget a task that is live no more, and what was found of it."""
        self.live.pop(task_id, None)
        self.intruders.pop(task_id, None)
        self.loads.pop(task_id, None)

    def forget(self, task_id: str) -> None:
        """Likewise one of which nothing is left: a container of it may still be in an answer that is on its way."""
        self.drop(task_id)
        self.forgotten[task_id] = None
        while len(self.forgotten) > FORGOTTEN:
            del self.forgotten[next(iter(self.forgotten))]
