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
from agentless.rules.tasks.gangs import mates
from agentless.rules.tasks.preemptible import asked_at


class Preemption:
    """Has victims stopped, each at its time, while the task that needs the place still waits for it.

    The place is on disk first, with the names of its victims (`Scheduler`), then the stop of each victim, then the
    signal is sent. So after a crash, the next controller goes on with the same victims. Of a gang, all members wait for
    their places, and all members give way.
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
            gang = self._to_ask(name)
            if not gang or self._asking.keys() & {each.id for each in gang} or not self._waits(task.id):
                continue
            if self._clock.now() >= max(asked_at(each, place.until, EVERY) for each in gang):
                self._asking |= dict.fromkeys((each.id for each in gang), asyncio.create_task(self._end(task.id, name)))

    async def _end(self, task_id: str, name: str) -> None:
        gang = self._to_ask(name)
        try:
            task = self._tasks.live.get(task_id)
            if task and gang and self._waits(task_id) and (place := task.kept_place) and name in place.victims:
                with guarded(f"task {name}: its preemption"):
                    await self._stops.preempt(gang, needs_its_place(task))
        finally:
            for key in [key for key, work in self._asking.items() if work is asyncio.current_task()]:
                del self._asking[key]

    def _waits(self, task_id: str) -> bool:
        """Whether a task still waits for its place; of a gang all members, whose nodes answer."""
        task = self._tasks.live.get(task_id)
        gang = mates(task, self._tasks.live.get) or [task] if task else []
        places = [place for each in gang if (place := each.kept_place) and self._is_online(place.node)]
        return bool(task) and len(places) == len(gang) == (task.spec.gang_size if task else 0)

    def _to_ask(self, name: str) -> list[Task]:
        """A victim, with all of its gang; empty if one of them does not run, is stopping, or cannot be reached."""
        victim = self._tasks.live.get(name)
        gang = (mates(victim, self._tasks.live.get) or [victim]) if victim else []
        running = [each for each in gang if isinstance(each.status, (Running, Paused)) and not each.stop]
        able = [each for each in running if self._is_online(each.node)]
        return able if victim and len(able) == victim.spec.gang_size else []

    def _is_online(self, node: str | None) -> bool:
        link = self._nodes.links.get(node or "")
        return link is not None and link.online
