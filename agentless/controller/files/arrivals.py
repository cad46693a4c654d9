"""Artifacts on their way here: a job that requires others is not ready before what they leave has arrived."""

from __future__ import annotations

import math
import time

from agentless.controller.files.expected_outputs import ExpectedOutputs
from agentless.controller.state.event_bus import EventBus, OutputsSettled
from agentless.controller.state.tasks import Tasks
from agentless.model.tasks.task import Task

PATIENCE = 300.0
"""Seconds for which artifacts are waited for that cannot be fetched although their node answers."""


class Arrivals:
    """Knows what is still to arrive of jobs that have ended, and when that is waited for no more."""

    def __init__(self, expected: ExpectedOutputs, tasks: Tasks, bus: EventBus) -> None:
        self._expected = expected
        self._tasks = tasks
        self._bus = bus
        self._awaited: dict[str, Task] = {}
        self._stuck: dict[str, float] = {}
        self._given_up: set[str] = set()

    def awaited(self, task_id: str) -> str | None:
        """What is to arrive of a job that has ended, in words; None if nothing is, or it is waited for no more."""
        if task_id not in self._expected or task_id in self._given_up:
            return None
        task = self._awaited.get(task_id) or self._tasks.history.get(task_id)
        if task is None or task.spec.job is None or not task.spec.job.artifacts:
            return None
        view = next(iter(self._expected.view(task)), None)
        if view is None or view.state == "missing" or not self._expected.has_node(task):
            return None
        self._awaited[task_id] = task
        coming = self._expected.arriving.get(task_id)
        if view.state != "stuck" or (coming and coming.bytes):
            self._stuck.pop(task_id, None)
        else:
            self._stuck.setdefault(task_id, time.monotonic())
        return view.words

    def tick(self) -> None:
        """Let those go on that have waited long enough. While a node is silent, artifacts there are waited for."""
        self._given_up = {task_id for task_id in self._given_up if task_id in self._expected}
        for task_id, task in list(self._awaited.items()):
            if self.awaited(task_id) is not None:
                is_late = time.monotonic() - self._stuck.get(task_id, math.inf) > PATIENCE
                if not is_late or (task.state == "completed" and not self._expected.is_reachable(task)):
                    continue
                self._given_up.add(task_id)
            del self._awaited[task_id]
            self._stuck.pop(task_id, None)
            if task_id in self._expected:
                self._bus.emit(OutputsSettled(task))
