"""Stops the other jobs of a workflow when a job has failed, if its file says so."""

from __future__ import annotations

import asyncio

from agentless.controller.guarded import guarded
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.workflows.workflows import Workflows
from agentless.model.tasks.task_event import StopAsked
from agentless.rules.workflows.progress import has_failed, to_stop


class WorkflowFailures:
    """Looks at a workflow when one of its jobs has failed, and at all of them after a start."""

    def __init__(self, workflows: Workflows, ledger: Ledger, bus: EventBus) -> None:
        self._workflows = workflows
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._to_look: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        bus.subscribe(TaskChanged, self._changed)

    def start(self) -> None:
        """Begin. An earlier controller may have stopped between a failure and what follows, or before it had tasks."""
        with guarded("records of workflows"):
            self._workflows.tidy()
        jobs = ((task.batch, task.spec.job) for task in self._tasks.live.values())
        self._to_look |= {batch: None for batch, job in jobs if job and job.on_failure == "stop"}
        self._work = asyncio.create_task(self._keep_working(), name="failures in workflows")
        self._wake.set()

    async def close(self) -> None:
        """Leave the rest to the next controller."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def tick(self) -> None:
        """Try again what could not be written."""
        if self._to_look:
            self._wake.set()

    # ------------------------------------------------------------------ inside

    def _changed(self, event: TaskChanged) -> None:
        if has_failed(event.after):
            self._to_look[event.after.batch] = None
            self._wake.set()

    async def _keep_working(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for workflow in list(self._to_look):
                with guarded(f"workflow {workflow}: what follows from a failure"):
                    await self._stop_others(workflow)
                    self._to_look.pop(workflow, None)

    async def _stop_others(self, workflow: str) -> None:
        while left := self._left(workflow):  # a preempted job, or one that is tried again, may have a new try by now
            for task_id, stop in left:
                if self._is_to_stop(task_id):
                    # What has a container gets its signals as any stop that is stored.
                    self._ledger.apply(task_id, stop, "on_failure of its workflow")
                    await asyncio.sleep(0)  # others have their turn: each is a write of its own

    def _left(self, workflow: str) -> list[tuple[str, StopAsked]]:
        """The tasks that are still to be stopped, in order."""
        tasks = self._workflows.tasks_of(workflow)
        failed = next((task.spec.name for task in tasks.values() if has_failed(task)), "")
        stop = StopAsked("stop", reason=f"job {failed} of its workflow failed, and on_failure is stop")
        return [(task_id, stop) for task_id in to_stop(tasks) if self._is_to_stop(task_id)]

    def _is_to_stop(self, task_id: str) -> bool:
        """Whether a task has not been stopped yet: one that only gives way would run again."""
        task = self._tasks.live.get(task_id)
        return task is not None and task.stop in (None, "preempt")
