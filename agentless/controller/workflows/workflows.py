"""Runs and shows workflows. The tasks are the truth: a record only has the text of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentless.controller.files.artifacts import Artifacts
from agentless.controller.state.tasks import Tasks
from agentless.controller.state.views import TaskViews
from agentless.controller.submit.request import Submit
from agentless.controller.submit.submission import Submission
from agentless.controller.tasks.carried_workflows import CarriedWorkflows
from agentless.errors import NotFound
from agentless.model.caller import Caller
from agentless.model.tasks.job import Job
from agentless.model.tasks.task import Ended, Task
from agentless.model.tasks.task_id import first_try
from agentless.model.view import JobView, WorkflowStartView, WorkflowView
from agentless.model.workflows.record import WorkflowRecord
from agentless.rules.views.nearest import nearest
from agentless.rules.views.publish import timestamp
from agentless.rules.workflows.progress import last_tries, missing, not_needed, state_of
from agentless.stores.files.workflows import WorkflowStore


class Workflows:
    """Runs, finds and shows workflows."""

    def __init__(
        self,
        submission: Submission,
        store: WorkflowStore,
        carried: CarriedWorkflows,
        artifacts: Artifacts,
        tasks: Tasks,
        views: TaskViews,
    ) -> None:
        self.store = store
        self.artifacts = artifacts
        self._carried = carried
        self._submission = submission
        self._tasks = tasks
        self._views = views

    async def run(self, request: Submit, name: str, text: str) -> WorkflowStartView:
        """Submit all jobs at once, or none of them; a dry run submits none."""

        def record(tasks: Sequence[Task]) -> None:
            self.store.put(WorkflowRecord(tasks[0].batch, name, text))

        return await self.submit(request, record)

    async def submit(self, request: Submit, record: Callable[[Sequence[Task]], None]) -> WorkflowStartView:
        """Submit jobs of one workflow, all or none; `record` is called just before they are stored."""
        specs = tuple(map(self.artifacts.wanted, request.specs))
        starts = await self._submission.submit(replace(request, specs=specs, whole=True), record)
        begun = next((start.task for start in starts if start.task), None)
        if begun is None:
            return WorkflowStartView(None, tuple(starts))
        view = self.view(self.tasks_of(begun.batch), request.by)
        return WorkflowStartView(replace(view, not_carried=self._carried.why_not(begun.batch)), tuple(starts))

    def all(self, caller: Caller, *, mine: bool = False) -> list[WorkflowView]:
        """All workflows, the newest first."""
        found = self._known()
        views = [self.view(tasks, caller) for tasks in found.values()]
        return sorted((view for view in views if view.mine or not mine), key=lambda view: view.id, reverse=True)

    def find(self, reference: str) -> dict[str, Task]:
        """The last tries of the tasks of a workflow, by first tries; it is named by its id, a prefix, or its name.

        A name means the newest workflow of that name. Raises NotFound.
        """
        if exact := self.tasks_of(first_try(reference)):
            return exact
        known = self._known()
        named = [key for key, tasks in known.items() if _job_of(tasks).of == reference]
        begun = [key for key in known if reference and key.startswith(reference)]
        if not named and len(begun) > 1:
            raise NotFound(
                f"{reference!r} matches {len(begun)} workflows ({', '.join(begun[:5])}); type more of the id"
            )
        if not named and not begun:
            hint = nearest(reference, [*known, *(_job_of(tasks).of for tasks in known.values())])
            raise NotFound(f"no workflow {reference!r}{hint}; to list workflows, run: agentless workflow list")
        return known[max(named or begun)]

    def tasks_of(self, workflow: str) -> dict[str, Task]:
        """The last tries of the tasks of the workflow with this id, by first tries; empty if there is none."""
        every = [*self._tasks.history.batch(workflow), *self._tasks.in_batch(workflow)]
        return last_tries(task for task in every if task.spec.job and task.spec.job.workflow == workflow)

    def show(self, reference: str, caller: Caller) -> WorkflowView:
        """A workflow with its jobs, and the text of its file."""
        tasks = self.find(reference)
        view = self.view(tasks, caller)
        record = self.store.get(view.id)
        jobs = tuple(self._job(task, caller) for task in tasks.values())
        text = record.text if record else ""
        not_carried = "" if view.ended_at else self._carried.why_not(view.id)
        return replace(view, jobs=jobs, text=text, not_carried=not_carried)

    def view(self, tasks: Mapping[str, Task], caller: Caller) -> WorkflowView:
        """A workflow without its jobs."""
        first, job = next(iter(tasks.values())), _job_of(tasks)
        ends = [task.status.ended_at for task in tasks.values() if isinstance(task.status, Ended)]
        return WorkflowView(
            id=job.workflow,
            name=job.of,
            state=state_of(tasks.values()),
            owner=first.owner,
            mine=first.owner == caller.name,
            created_at=timestamp(min(task.created_at for task in tasks.values())) or "",
            ended_at=timestamp(max(ends)) if len(ends) == len(tasks) else None,
            on_failure=job.on_failure,
            counts=dict(Counter(task.state for task in tasks.values())),
            missing=missing(tasks.values()),
            not_needed=len(not_needed(tasks)),
        )

    def tidy(self) -> None:
        """Remove the records of workflows without tasks: all were removed, or a controller died before it had any."""
        for workflow in self.store.ids():
            if not self.tasks_of(workflow):
                self.store.remove(workflow)

    # ------------------------------------------------------------------ inside

    def _job(self, task: Task, caller: Caller) -> JobView:
        view, spec = self._views.seen_by(caller, task), task.spec
        return JobView(spec.job.name if spec.job else "", dict(spec.parameters), spec.terms.requires, view)

    def _known(self) -> dict[str, dict[str, Task]]:
        """All workflows by id, each with its tasks."""
        live = {task.batch for task in self._tasks.live.values() if task.spec.job}
        found = {key: self.tasks_of(key) for key in sorted({*self.store.ids(), *live})}
        return {key: tasks for key, tasks in found.items() if tasks}


def _job_of(tasks: Mapping[str, Task]) -> Job:
    return next(task.spec.job for task in tasks.values() if task.spec.job)
