"""Stops workflows, tries them again, and removes them."""

from __future__ import annotations

import asyncio

from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.retries import Retries
from agentless.controller.tasks.stops import Stops
from agentless.controller.workflows.workflows import Workflows
from agentless.errors import AgentlessError, Refused
from agentless.model.caller import Caller
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try
from agentless.model.view import WorkflowView
from agentless.rules.views.nearest import nearest
from agentless.rules.workflows.progress import to_retry


class WorkflowChanges:
    """Changes workflows as a whole."""

    def __init__(self, workflows: Workflows, stops: Stops, retries: Retries, removal: Removal) -> None:
        self._workflows = workflows
        self._stops = stops
        self._retries = retries
        self._removal = removal

    async def stop(self, reference: str, grace: float | None = None, *, by: Caller) -> WorkflowView:
        """Stop all jobs that have not ended."""
        tasks = self._workflows.find(reference)
        live = [task for _, task in sorted(tasks.items(), reverse=True) if task.live]
        await self.stop_tasks(live, grace, by=by)
        return self._now(tasks, by)

    async def stop_tasks(self, live: list[Task], grace: float | None = None, *, by: Caller) -> None:
        """Stop these tasks, in an order in which none is let go by the end of another; raises the first error."""
        # Those that have not started end at once, in order; the others get their signals at the same time.
        stops = [self._stops.stop(first_try(task.id), "stop", grace, by=by) for task in live]
        done = await asyncio.gather(*stops, return_exceptions=True)
        for error in done:
            if isinstance(error, BaseException):
                raise error

    def retry(self, reference: str, job: str | None, *, by: Caller) -> WorkflowView:
        """Run again what did not complete, and what was cancelled because of it; or a job and all that wait for it.

        Raises Refused if there is nothing, or if a job that would run again has not ended.
        """
        tasks = self._workflows.find(reference)
        names = {task.spec.job.name for task in tasks.values() if task.spec.job}
        if job is not None and job not in names:
            raise Refused(
                f"the workflow has no job {job[:60]!r}{nearest(job, names)}; jobs: {', '.join(sorted(names))}"
            )
        again = to_retry(tasks, job)
        if not again:
            raise Refused("no job of this workflow has failed; to run a job again, use --from JOB")
        for task in (tasks[first_try(each)] for each in again):
            if task.live and job is not None:
                raise Refused(f"job {task.spec.name} is {task.state}; first run: agentless workflow stop {reference}")
        refused: AgentlessError | None = None
        done = 0
        for each in again:
            try:
                self._retries.retry(first_try(each), by=by)
                done += 1
            except Refused as error:
                refused = refused or error
        if refused and not done:
            raise refused
        return self._now(tasks, by)

    async def remove(self, reference: str, *, force: bool, by: Caller) -> WorkflowView:
        """Remove a workflow with all its tasks; with `force` also live ones."""
        tasks = self._workflows.find(reference)
        view = self._now(tasks, by)
        if not force and (live := next((task for task in tasks.values() if task.live), None)):
            raise Refused(
                f"job {live.spec.name} is {live.state}; first run: agentless workflow stop {view.id}; or, to kill it: "
                f"agentless workflow rm --force {view.id}"
            )
        if not force:
            self._check_removable(tasks, view.id)
        for key in sorted(tasks, reverse=True):
            await self._removal.remove(key, by=by, force=force)
            self._workflows.artifacts.forget(key)
        self._workflows.store.remove(view.id)
        return view

    def _check_removable(self, tasks: dict[str, Task], workflow: str) -> None:
        """Raise Refused if one of the tasks cannot be removed, before any is."""
        hint = f"to remove the workflow all the same, run: agentless workflow rm --force {workflow}"
        for task in tasks.values():
            if self._removal.has_open_outputs(task):
                raise Refused(
                    f"outputs of job {task.spec.name} are not copied yet; to wait for them, run: agentless wait "
                    f"{task.id}; {hint}"
                )
            if others := [each for each in self._removal.waiting_for(task) if first_try(each) not in tasks]:
                raise Refused(f"task {others[0]} waits for job {task.spec.name} ({task.id}); {hint}")

    def _now(self, tasks: dict[str, Task], by: Caller) -> WorkflowView:
        workflow = next(iter(tasks.values())).batch
        return self._workflows.view(self._workflows.tasks_of(workflow), by)
