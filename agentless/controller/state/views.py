"""Tasks and GPUs as they are published, put together from the parts that know something of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from agentless.controller.state.tasks import Tasks
from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Node
from agentless.model.tasks.task import Blocked, Ended, Lost, Pending, Task
from agentless.model.tasks.task_id import next_try
from agentless.model.view import GpuView, OutputView, TaskView
from agentless.ports import Clock
from agentless.rules.scheduling.plan import Outlook
from agentless.rules.scheduling.timeline.reservations import shown
from agentless.rules.views.publish import gpu_view, seen_by, task_view


class Waiting(Protocol):
    """Knows when waiting tasks will start."""

    def outlook(self, task: Task) -> Outlook:
        """The position, reason and expected start of a waiting task."""


class Bringing(Protocol):
    """Knows the outputs of tasks."""

    def view(self, task: Task) -> tuple[OutputView, ...]:
        """The state of each output."""


class Reached(Protocol):
    """Knows how current the state of a node is."""

    def stale(self, task: Task) -> str | None:
        """Since when a task's state is not current, and why; None if it is current."""


class TaskViews:
    """Builds the published form of tasks."""

    def __init__(self, tasks: Tasks, nodes: Reached, queue: Waiting, outputs: Bringing, clock: Clock) -> None:
        self._tasks = tasks
        self._nodes = nodes
        self._queue = queue
        self._outputs = outputs
        self._clock = clock

    def seen_by(self, caller: Caller, task: Task) -> TaskView:
        """The task as the caller sees it."""
        return seen_by(caller, self.view(task))

    def view(self, task: Task) -> TaskView:
        """The task as it is published; one that is unknown here is marked as foreign, whatever its labels say."""
        known = self._tasks
        later = next_try(task.id) if isinstance(task.status, (Ended, Lost)) else None
        view = task_view(
            task,
            known.intruders.get(task.id, ()),
            self._queue.outlook(task) if isinstance(task.status, Blocked | Pending) else Outlook(),
            mine=task.owner == known.owner,
            retried_as=later if later and known.knows(later) else None,
            idle=known.idle.get(task.id),
            ending=known.endings.get(task.id),
            now=self._clock.now(),
            outputs=self._outputs.view(task),
        )
        if known.knows(task.id):
            stale = self._nodes.stale(task)
            return replace(view, reason="; ".join(filter(None, (stale, view.reason)))) if stale else view
        hint = "; if you did, run: agentless recover" if view.mine else ""
        return replace(view, foreign=True, reason=f"foreign: this controller did not start it{hint}")


class GpuViews:
    """Builds the published form of GPUs."""

    def __init__(self, tasks: Tasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock

    def seen_by(self, caller: Caller, node: Node) -> list[GpuView]:
        """The GPUs of a node as the caller sees them."""
        now = self._clock.now()
        found = list[GpuView]()
        for gpu in node.gpus:
            idle = self._tasks.idle.get(gpu.holder.task) if gpu.holder else None
            since = idle.since.get(gpu.reading.uuid) if idle else None
            found.append(gpu_view(node.name, gpu, shown(node, gpu.reading.number, now), since, now, caller.name))
        return found
