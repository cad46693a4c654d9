"""Asks tasks to give way to those for which their places are kept."""

from __future__ import annotations

import asyncio

from agentless.controller.guarded import guarded
from agentless.controller.nodes.registry import Nodes
from agentless.controller.periodic import EVERY
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.stops import Stops
from agentless.model.tasks.task import KeptPlace, Paused, Running, Task
from agentless.ports import Clock
from agentless.rules.explain.preemption import needs_its_place
from agentless.rules.tasks.preemptible import asked_at


class Preemption:
    """Has victims stopped, each at its time, while the task that needs the place still waits for it.

    The place is on disk first, with the names of its victims (`Scheduler`), then the stop of each victim, then the
    signal is sent. So after a crash, the next controller goes on with the same victims.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, stops: Stops, bus: EventBus, clock: Clock) -> None:
        self._nodes = nodes
        self._tasks = ledger.tasks
        self._stops = stops
        self._clock = clock
        self._asking: dict[str, asyncio.Task[None]] = {}
        bus.subscribe(TaskChanged, self._changed)

    def tick(self) -> None:
        """Ask those whose time has come, and whose node answers."""
        for task in list(self._tasks.live.values()):
            if place := task.kept_place:
                self._ask(task, place)

    async def close(self) -> None:
        """Leave the rest to the next controller."""
        asking = list(self._asking.values())
        for work in asking:
            work.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _changed(self, change: TaskChanged) -> None:
        place = change.after.kept_place
        if place and not change.before.kept_place:
            self._ask(change.after, place)

    def _ask(self, task: Task, place: KeptPlace) -> None:
        for name in place.victims:
            victim, link = self._tasks.live.get(name), self._nodes.links.get(place.node)
            is_there = victim is not None and isinstance(victim.status, (Running, Paused)) and not victim.stop
            if victim is None or not is_there or link is None or not link.online or name in self._asking:
                continue
            if self._clock.now() >= asked_at(victim, place.until, EVERY):
                self._asking[name] = asyncio.create_task(self._end(task.id, name))

    async def _end(self, task_id: str, name: str) -> None:
        try:
            task, victim = self._tasks.live.get(task_id), self._tasks.live.get(name)
            if task and victim and not victim.stop and (place := task.kept_place) and name in place.victims:
                with guarded(f"task {name}: its preemption"):
                    await self._stops.preempt(victim, needs_its_place(task))
        finally:
            self._asking.pop(name, None)
