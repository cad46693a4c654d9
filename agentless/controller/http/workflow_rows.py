"""The rows of workflows for screens: made again only when one of their tasks has changed."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.controller.state.tasks import Tasks
from agentless.controller.workflows.workflows import Workflows
from agentless.model.caller import Caller
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try
from agentless.model.view import WorkflowView

ENDED = 100
"""So many ended workflows are shown, the newest."""


class WorkflowRows:
    """The workflows of the tasks that are shown, as one caller sees them."""

    def __init__(self, workflows: Workflows, tasks: Tasks, caller: Caller) -> None:
        self._workflows = workflows
        self._tasks = tasks
        self._caller = caller
        self._known: dict[str, dict[str, Task]] = {}  # the last tries of their tasks, by first tries
        self._changed: set[str] = set()
        self._ended: set[str] = set()

    def take(self, task: Task) -> None:
        """A task has changed; what others know of, and labels say, is no task of a workflow here."""
        job = task.spec.job
        if job is None or task.batch != job.workflow or not self._tasks.knows(task.id):
            return
        self._changed.add(job.workflow)
        found = self._known.get(job.workflow)
        if found is None:
            self._known[job.workflow] = self._workflows.tasks_of(job.workflow)
        elif (first := first_try(task.id)) not in found or found[first].attempt <= task.attempt:
            found[first] = task

    def forget(self, task_id: str) -> None:
        """A task was removed."""
        for workflow, tasks in self._known.items():
            if tasks.pop(first_try(task_id), None):
                self._changed.add(workflow)

    def changes(self) -> Iterator[tuple[str, WorkflowView | None]]:
        """The workflows that have changed since the last time; None for one that is not shown any more."""
        for workflow in self._changed:
            tasks = self._known.get(workflow, {})
            is_live = any(task.live for task in tasks.values())
            (self._ended.add if tasks and not is_live else self._ended.discard)(workflow)
            if not tasks:
                self._known.pop(workflow, None)
        for oldest in sorted(self._ended)[:-ENDED]:
            del self._known[oldest]
            self._ended.remove(oldest)
            self._changed.add(oldest)
        for workflow in self._changed:
            shown = self._known.get(workflow)
            yield workflow, self._workflows.view(shown, self._caller) if shown else None
        self._changed.clear()
