"""Retries on request."""

from __future__ import annotations

from agentless.controller.files.uploads import Uploads
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.controller.tasks.dependencies import Dependencies
from agentless.errors import Refused
from agentless.model.caller import Caller
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import next_try
from agentless.ports import Clock
from agentless.rules.tasks.retry import fresh_try


class Retries:
    """Adds tries."""

    def __init__(
        self, ledger: Ledger, lookup: Lookup, dependencies: Dependencies, uploads: Uploads, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._lookup = lookup
        self._dependencies = dependencies
        self._uploads = uploads
        self._clock = clock

    def retry(self, reference: str, *, by: Caller) -> Task:
        """Add the next try of an ended task, whatever its terms say about retries."""
        task = self._lookup.find(reference)
        if task.live:
            raise Refused(f"task {task.id} is {task.state}: only ended tasks can be retried")
        if task.spec.traits.comes_back:
            raise Refused(f"task {task.id} is a VPS; to start it again, run: agentless vps start {task.spec.name}")
        if not self._tasks.knows(task.id):
            raise Refused(
                f"this controller does not know task {task.id}; to take over your own tasks, run: agentless recover"
            )
        if self._tasks.knows(later := next_try(task.id)):
            raise Refused(f"task {task.id} was already retried as {later}; run: agentless retry {later}")
        if task.spec.secret_env:
            raise Refused(f"the secrets of task {task.id} have been deleted; submit the task again")
        again = fresh_try(task, self._clock.now())
        try:
            self._uploads.check([again])
        except Refused as error:
            raise Refused(f"cannot retry task {task.id}: {error}") from None
        event = self._dependencies.again(again, ran=task.placement is not None)
        return self._ledger.add(again, event, f"agentless retry, by {by}")
