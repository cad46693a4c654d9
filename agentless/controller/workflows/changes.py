"""Stops workflows, tries them again, and removes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agentless.controller.tasks.removal import Removal
from agentless.controller.tasks.retries import Retries
from agentless.controller.tasks.stops import Stops
from agentless.controller.workflows.workflows import Workflows
from agentless.errors import AgentlessError, NoAnswer, Refused, Unreachable
from agentless.model.caller import Caller
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import first_try
from agentless.model.view import WorkflowView
from agentless.rules.tasks.dependencies import listed
from agentless.rules.views.nearest import nearest
from agentless.rules.workflows.progress import is_being_stopped, named, to_retry


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
        """Stop these tasks, in an order in which none is let go by the end of another.

        Raises the first error. What is on a node that does not answer ends when it does, and the error says so.
        """
        # Those that have not started end at once, in order; the others get their signals at the same time.
        stops = [self._stops.stop(first_try(task.id), "stop", grace, by=by) for task in live]
        done = await asyncio.gather(*stops, return_exceptions=True)
        errors = [(task, error) for task, error in zip(live, done, strict=True) if isinstance(error, BaseException)]
        for _, error in errors:
            if not isinstance(error, NoAnswer):
                raise error
        if errors:
            silent, left = _silent(task for task, _ in errors)
            raise Unreachable(f"{silent}; agentless ends {left} there when it does; all others are stopped")

    def retry(self, reference: str, job: str | None, *, by: Caller) -> WorkflowView:
        """Run again what did not complete, and what was cancelled because of it; or a job and all that wait for it.

        Raises Refused if there is nothing, or if a job that would run again has not ended.
        """
        tasks = self._workflows.find(reference)
        names = {task.spec.job.name for task in tasks.values() if task.spec.job}
        if job is not None and not named(tasks, job):
            raise Refused(
                f"the workflow has no job {job[:60]!r}{nearest(job, names)}; jobs: {', '.join(sorted(names))}"
            )
        if stopping := next(filter(is_being_stopped, tasks.values()), None):
            raise Refused(
                f"job {stopping.spec.name} is being stopped; to wait for its end, run: agentless wait {stopping.id}"
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
        """Remove a workflow with all its tasks, or nothing of it; with `force` also live ones.

        Raises Unreachable if a node does not answer. If it falls silent meanwhile, the error says how much is left.
        """
        tasks = self._workflows.find(reference)
        view = self._now(tasks, by)
        if not force and (live := next((task for task in tasks.values() if task.live), None)):
            raise Refused(
                f"job {live.spec.name} is {live.state}; first run: agentless workflow stop {view.id}; or, to kill it: "
                f"agentless workflow rm --force {view.id}"
            )
        if not force:
            self._check_removable(tasks, view.id)
        if there := await self._removal.silent(tasks.values()):
            silent, left = _silent(task for tasks in there.values() for task in tasks)
            ends = (
                f"; to end what runs there as soon as it does, run: agentless workflow stop {view.id}" if force else ""
            )
            raise Unreachable(f"{silent}; nothing was removed, because {left} ran there; retry when it does{ends}")
        rest: list[Task] = []
        begun = [[key] for key in sorted(tasks, reverse=True) if tasks[key].live]  # none is let go by another one's end
        for some in (*begun, [key for key in tasks if not tasks[key].live]):
            for key, result in (await self._removal.remove_all(some, by=by, force=force, part=True)).items():
                if isinstance(result, NoAnswer):
                    rest.append(tasks[key])
                elif isinstance(result, AgentlessError):
                    raise result
                else:
                    self._workflows.artifacts.forget(key)
        if rest:
            silent, left = _silent(rest)
            raise Unreachable(
                f"{silent}; {len(tasks) - len(rest)} of {len(tasks)} tasks were removed, but not {left}; to remove the "
                f"rest when it answers, run: agentless workflow rm {'--force ' * force}{view.id}"
            )
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


def _silent(tasks: Iterable[Task]) -> tuple[str, str]:
    """For tasks on nodes that do not answer: `node2 does not answer`, and `tasks 2mxf and 2mxg`."""
    every = list(tasks)
    nodes = dict.fromkeys(task.node or "" for task in every)
    does, ids = "does" if len(nodes) == 1 else "do", [task.id for task in every]
    return f"{listed(list(nodes))} {does} not answer", f"{'task' if len(ids) == 1 else 'tasks'} {listed(ids)}"
