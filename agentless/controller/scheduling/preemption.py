"""Asks tasks to give way to those for which their places are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentless.controller.guarded import guarded
from agentless.controller.nodes.registry import Nodes
from agentless.controller.periodic import EVERY
from agentless.controller.state.event_bus import EventBus, TaskChanged
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.stops import Stops
from agentless.model.tasks.task import Ended, KeptPlace, Paused, Running, Task
from agentless.ports import Clock
from agentless.rules.explain.preemption import ended_before, needs_its_place
from agentless.rules.tasks.gangs.gangs import unit_of
from agentless.rules.tasks.preemptible import asked_at


class Preemption:
    """Has victims stopped, each at its time, while the task that needs the place still waits for it.

    The place is on disk first, with the names of its victims (`Scheduler`), then the stop of each victim, then the
    signal is sent. So after a crash, the next controller goes on with the same victims. Of a gang, all members wait for
    their places, and all members give way.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger, stops: Stops, bus: EventBus, clock: Clock) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._stops = stops
        self._clock = clock
        self._asking: dict[str, asyncio.Task[None]] = {}
        bus.subscribe(TaskChanged, self._changed)

    def tick(self) -> None:
        """Ask those whose time has come, and whose node answers."""
        for task in list(self._tasks.live.values()):
            if task.kept_place:
                self._ask(task)

    async def close(self) -> None:
        """Leave the rest to the next controller."""
        asking = list(self._asking.values())
        for work in asking:
            work.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _changed(self, change: TaskChanged) -> None:
        if change.after.kept_place and not change.before.kept_place:
            self._ask(change.after)
        if (place := change.before.kept_place) and isinstance(change.after.status, Ended):
            self._tell_victims(place, change.after)

    def _tell_victims(self, place: KeptPlace, ended: Task) -> None:
        """Record with those who are stopping for a task that it has ended before it began. They cannot go on."""
        for victim in map(self._tasks.live.get, place.victims):
            if victim and victim.stop == "preempt":
                self._ledger.publish(victim, "asker-ended", ended_before(ended, victim))

    def _ask(self, task: Task) -> None:
        """Ask those who are due for a task, or for all of a gang when the last of its places is kept."""
        due = list[str]()
        for name, place in self._wanted(task.id):
            gang = self._to_ask(name)
            if not gang or self._asking.keys() & {each.id for each in gang}:
                continue
            if self._clock.now() >= max(asked_at(each, place.until, EVERY) for each in gang):
                due += [each.id for each in gang]
        if due:
            self._asking |= dict.fromkeys(due, asyncio.create_task(self._end(task.id, due)))

    async def _end(self, task_id: str, due: Sequence[str]) -> None:
        """Have them stopped in one write."""
        try:
            wanted = [name for name, _ in self._wanted(task_id) if name in due]
            victims = {each.id: each for name in wanted for each in self._to_ask(name)}
            if victims:
                [first, *_] = self._waiting(task_id)
                with guarded(f"task {task_id}: preemption of {', '.join(victims)}"):
                    await self._stops.preempt(list(victims.values()), needs_its_place(first))
        finally:
            for key in [key for key, work in self._asking.items() if work is asyncio.current_task()]:
                del self._asking[key]

    def _wanted(self, task_id: str) -> list[tuple[str, KeptPlace]]:
        """The victims of a task or gang that still waits, with their places."""
        places = [place for task in self._waiting(task_id) if (place := task.kept_place)]
        return [(name, place) for place in places for name in place.victims]

    def _waiting(self, task_id: str) -> list[Task]:
        """A task, or all of its gang, while places are kept for them and their nodes answer; else nobody."""
        task = self._tasks.live.get(task_id)
        gang = unit_of(task, self._tasks.live.get) if task else []
        ready = [each for each in gang if (place := each.kept_place) and self._is_online(place.node)]
        return ready if task and len(ready) == task.spec.gang_size else []

    def _to_ask(self, name: str) -> list[Task]:
        """A victim, with all of its gang; empty if one of them does not run, is stopping, or cannot be reached."""
        victim = self._tasks.live.get(name)
        gang = unit_of(victim, self._tasks.live.get) if victim else []
        running = [each for each in gang if isinstance(each.status, (Running, Paused)) and not each.stop]
        able = [each for each in running if self._is_online(each.node)]
        return able if victim and len(able) == victim.spec.gang_size else []

    def _is_online(self, node: str | None) -> bool:
        link = self._nodes.links.get(node or "")
        return link is not None and link.online
