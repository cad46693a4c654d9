"""Puts workflows into the labels of the tasks that they start."""

from __future__ import annotations

from dataclasses import replace

from agentless.controller.state.tasks import Tasks
from agentless.model.tasks.task import Task, Waiting
from agentless.model.tasks.task_id import first_try
from agentless.rules.workflows.carried import pack, with_begun
from agentless.stores.files.workflows import WorkflowStore

_KEPT = 20
"""Workflows whose jobs are kept packed: to pack a thousand jobs takes longer than to start one."""


class CarriedWorkflows:
    """Gives a task that is launched the whole workflow that it belongs to."""

    def __init__(self, tasks: Tasks, store: WorkflowStore) -> None:
        self._tasks = tasks
        self._store = store
        self._packed: dict[str, tuple[str, tuple[str, ...]]] = {}

    def carrying(self, task: Task) -> Task:
        """The task as it is launched; only its labels have more in them than the task that is stored."""
        job = task.spec.job
        if job is None or not job.workflow:
            return task
        packed, ids = self._workflow(job.workflow)
        if not packed:
            return task
        waiting = {first_try(each.id) for each in self._tasks.live.values() if isinstance(each.status, Waiting)}
        value = with_begun(packed, ids, (each for each in ids if each not in waiting))
        return replace(task, spec=replace(task.spec, job=replace(job, packed=value)))

    def _workflow(self, workflow: str) -> tuple[str, tuple[str, ...]]:
        if workflow not in self._packed:
            live = [task for task in self._tasks.live.values() if task.batch == workflow]
            every = [*self._tasks.history.batch(workflow), *live]
            tasks = {first_try(task.id): task for task in every if task.spec.job}
            record = self._store.get(workflow)
            while len(self._packed) >= _KEPT:
                self._packed.pop(next(iter(self._packed)))
            self._packed[workflow] = pack(tasks.values(), record.text if record else ""), tuple(sorted(tasks))
        return self._packed[workflow]
