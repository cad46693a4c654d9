"""Group commit: events that arrive at about the same time share one write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentless.controller.state.ledger import Ledger
from agentless.errors import IllegalMove
from agentless.model.tasks.task_event import TaskEvent


class GroupCommit:
    """Applies events of many tasks at once, like the answers to their launches.

    The first event is written at once. Those that arrive soon after a write wait for as long as that took, so that
    at most half of the time is spent writing.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: dict[str, tuple[TaskEvent, str]] = {}
        self._writing: asyncio.Task[dict[str, IllegalMove]] | None = None
        self._not_before = 0.0

    async def apply(self, task_id: str, event: TaskEvent, cause: str) -> None:
        """Apply one event of a task. It is on disk when this returns, unless the task is gone by then.

        Raises IllegalMove, which concerns none of the others, or StateError.
        """
        self._waiting[task_id] = event, cause
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        # Shielded: the others that it is written with do not go when one who waits does.
        illegal = await asyncio.shield(self._writing)
        if task_id in illegal:
            raise illegal[task_id]

    async def _write(self) -> dict[str, IllegalMove]:
        """Write the waiting events; returns those that their tasks no longer allow."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._not_before - loop.time())
        waiting, self._waiting, self._writing = self._waiting, {}, None
        began = loop.time()
        try:
            return self._apply({task: event for task, event in waiting.items() if task in self._ledger.tasks.live})
        finally:
            self._not_before = 2 * loop.time() - began

    def _apply(self, events: Mapping[str, tuple[TaskEvent, str]]) -> dict[str, IllegalMove]:
        illegal = dict[str, IllegalMove]()
        try:
            self._ledger.apply_all(events)
        except IllegalMove:
            for task, (event, cause) in events.items():
                try:
                    self._ledger.apply(task, event, cause)
                except IllegalMove as error:
                    illegal[task] = error
        return illegal
