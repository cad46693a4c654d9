"""The tasks of one submit, and what can be done to all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from agentless.api.shown import tasks_line, tasks_table
from agentless.api.task import Task
from agentless.api.verb import Verb
from agentless.errors import AgentlessError
from agentless.model.tasks.task import FAILED
from agentless.model.units import counted
from agentless.rules.submit.kinds import parse_seconds

_AT_ONCE = 32


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """The result of a submit to several targets: its tasks, and an error for each target that got none.

    Methods that act return the batch anew, with its tasks as they are then; of retried ones the last try.

    Each method can also be awaited, as `await batch.wait.aio()`. They raise what is in `agentless.errors`.
    """

    tasks: tuple[Task, ...]
    errors: tuple[AgentlessError, ...]

    def __repr__(self) -> str:
        failed = f" and {counted(len(self.errors), 'error')}" if self.errors else ""
        return tasks_line("Batch", self.tasks).removesuffix(">") + f"{failed}>"

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        return tasks_table(self.tasks)

    @Verb
    def wait(self, timeout: float | str | timedelta | None = None) -> Batch:
        """The batch once all tasks have ended. Raises TimeoutError if they have not by then; they go on."""
        until = None if timeout is None else time.monotonic() + parse_seconds(timeout, "timeout")
        ended: list[Task] = []
        for task in self.tasks:
            try:
                ended.append(task.wait(None if until is None else max(0.0, until - time.monotonic())))
            except TimeoutError:
                raise TimeoutError(f"task {task.id} has not ended within {timeout}; all tasks keep running") from None
        return replace(self, tasks=tuple(ended))

    @Verb
    def stop(self, grace: float | str | timedelta | None = None) -> Batch:
        """End all tasks gently, at the same time. Returns the batch when they have ended."""
        # Pending tasks are last: stopped first, they do not start when the others end.
        stopped = _each(self.tasks[::-1], lambda task: task.stop(grace))
        return replace(self, tasks=tuple(stopped[::-1]))

    @Verb
    def retry_failed(self) -> Batch:
        """Retry the tasks that failed, ran out of memory, or reached their time limit."""
        return replace(self, tasks=tuple(_each(self.tasks, _retried)))


def _retried(task: Task) -> Task:
    now = task.refresh()
    return now.retry() if now.state in FAILED else now


def _each(tasks: Sequence[Task], act: Callable[[Task], Task]) -> list[Task]:
    """Act on all tasks at the same time; raises the first error once all are done."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only for batches

    pool = ThreadPoolExecutor(min(_AT_ONCE, len(tasks) or 1), "agentless")
    try:
        acts = [pool.submit(act, task) for task in tasks]
        failed = [error for each in acts if (error := each.exception())]
        for error in failed:
            raise error
        return [each.result() for each in acts]
    finally:
        pool.shutdown(wait=False)
