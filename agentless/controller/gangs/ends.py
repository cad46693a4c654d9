"""Ends gangs: the end or the loss of one member stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agentless.controller.guarded import guarded, guarded_item
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.stops import Stops
from agentless.model.tasks.task import Ended, Lost, Task
from agentless.model.tasks.task_event import StopAsked
from agentless.rules.tasks.gangs.gangs import gang_key, mates, why_all_end


class GangEnds:
    """Stops the other members of a gang when one has ended or is lost."""

    def __init__(self, ledger: Ledger, stops: Stops, bus: EventBus) -> None:
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._stops = stops
        self._work: set[asyncio.Task[None]] = set()
        bus.subscribe(TaskChanged, self._changed)

    def tick(self) -> None:
        """Look at all gangs: an earlier controller may have left one half way."""
        gangs = {(gang.members, gang_key(task)): task for task in self._tasks.live.values() if (gang := task.spec.gang)}
        for task in gangs.values():
            with guarded_item(f"gang {gang_key(task)}"):
                self._look(task)

    async def close(self) -> None:
        """Leave what is under way to the next controller."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _changed(self, changed: TaskChanged) -> None:
        task = changed.after
        if task.spec.gang and isinstance(task.status, (Ended, Lost)) and changed.before.state != task.state:
            # Not now: the change is not told yet.
            self._spawn(self._look_soon(task))

    async def _look_soon(self, task: Task) -> None:
        self._look(task)

    def _look(self, task: Task) -> None:
        if task.spec.gang is None:
            return
        members = mates(task, self._tasks.find)
        why = why_all_end(members)
        asked = [each for each in members if why and each.live and not each.stop]
        for each in asked:
            self._ledger.apply(each.id, StopAsked("stop", reason=why), "a member of its gang has ended")
        if asked:
            for stop in self._stops.resume():
                self._spawn(stop)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        job = asyncio.create_task(_quietly(work))
        self._work.add(job)
        job.add_done_callback(self._work.discard)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    with guarded("the end of a gang"):
        await work
