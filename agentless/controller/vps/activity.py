"""When each VPS was last used: by a session, on its GPUs, or on its processors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentless.controller.guarded import guarded
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.nodes.visits import Visits
from agentless.controller.scheduling.idle import IdleWatch
from agentless.model.tasks.task import Running, Task
from agentless.ports import Clock

EVERY = 60.0
"""Seconds between two looks at what containers have used of the processors."""
GAP = 3 * EVERY
"""Seconds without a look after which nothing is known of the time before."""
BUSY = 0.02
"""Cores, on average between two looks, from which on a container is in use."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """Processor time (seconds) of a container at a time, and since when it uses none."""

    at: float
    used: float
    idle_since: float


class Activity:
    """Looks at the VPS that are to be stopped when they are idle."""

    def __init__(self, nodes: Nodes, idle: IdleWatch, visits: Visits, clock: Clock) -> None:
        self._nodes = nodes
        self._visits = visits
        self._idle = idle
        self._clock = clock
        self._readings: dict[str, _Reading] = {}
        self._looked_at = 0.0
        self._looks: set[asyncio.Task[None]] = set()

    def tick(self, watched: Iterable[Task]) -> None:
        """Look at these once a minute."""
        now = self._clock.now()
        if 0 <= now - self._looked_at < EVERY:
            return
        self._looked_at = now
        by_node: dict[str, dict[str, Task]] = {}
        for task in watched:
            by_node.setdefault(task.node or "", {})[task.container_ref] = task
        known = {task.id for tasks in by_node.values() for task in tasks.values()}
        self._visits.keep_only(known)
        self._readings = {key: reading for key, reading in self._readings.items() if key in known}
        for node, tasks in by_node.items():
            if (link := self._nodes.links.get(node)) and link.online:
                look = asyncio.create_task(self._look(link, tasks))
                self._looks.add(look)
                look.add_done_callback(self._looks.discard)

    def idle_since(self, task: Task) -> float | None:
        """Since when a VPS is not used (Unix seconds); None if it is, or if that is unknown."""
        now, status = self._clock.now(), task.status
        reading = self._readings.get(task.id)
        if not isinstance(status, Running) or reading is None or now - reading.at > GAP:
            return None
        left = self._visits.left_at(task.id)
        gpus = self._idle.idle_since(task)
        if left is None or gpus is None:
            return None
        return max(status.started_at, reading.idle_since, left, gpus)

    # ------------------------------------------------------------------ inside

    async def _look(self, link: NodeLink, tasks: Mapping[str, Task]) -> None:
        with guarded(f"{link.node.name}: processor time of VPS"):
            result = await link.run(link.runtime.cpu(list(tasks)))
            used, now = link.runtime.parse_cpu(result), self._clock.now()
            for container, task in tasks.items():
                if container in used:
                    self._readings[task.id] = _next(self._readings.get(task.id), used[container], now)
                else:
                    self._readings.pop(task.id, None)


def _next(before: _Reading | None, used: float, now: float) -> _Reading:
    if before is None or not 0 < now - before.at <= GAP or used < before.used:
        return _Reading(now, used, now)
    is_busy = (used - before.used) / (now - before.at) >= BUSY
    return _Reading(now, used, now if is_busy else before.idle_since)
