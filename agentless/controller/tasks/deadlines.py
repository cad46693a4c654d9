"""Deadlines of tasks: start times, waits that are over, and time limits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from agentless.controller.guarded import guarded, guarded_item
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.stops import Stops
from agentless.model.tasks.task import Submitted, Task
from agentless.model.tasks.task_event import StopAsked
from agentless.ports import Clock
from agentless.rules.tasks.due import due

AT_LEAST_EVERY = 5.0
"""Seconds between two looks at the clock, which may have been set, and at stops that could not be carried out yet."""


class Deadlines:
    """Applies what is due, and carries out pending stops."""

    def __init__(self, nodes: Nodes, ledger: Ledger, stops: Stops, bus: EventBus, clock: Clock) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._tasks = ledger.tasks
        self._stops = stops
        self._bus = bus
        self._clock = clock
        self._stops_at = 0.0
        self._work: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start watching the clock."""
        self._work = asyncio.create_task(self._keep_time(), name="timer")

    async def close(self) -> None:
        """Stop watching."""
        work = [*filter(None, [self._work]), *self._chores]
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    def tick(self) -> float:
        """Apply what is due; returns the seconds until the next deadline."""
        now, wait = self._clock.now(), AT_LEAST_EVERY
        found = [(task.id, coming) for task in self._tasks.live.values() if (coming := due(task))]
        wait = min([wait, *(coming.at - now for _, coming in found if coming.at > now)])
        with guarded("due limits and start times"):
            for task_id, coming in found:
                if coming.at <= now and self._is_known(self._tasks.live[task_id], coming.at):
                    with guarded_item(f"task {task_id}: due limit or start time"):
                        self._ledger.apply(task_id, coming.event, coming.cause)
                        if isinstance(coming.event, StopAsked):
                            self._stops_at = now
        if now >= self._stops_at or self._stops_at > now + AT_LEAST_EVERY:
            self._stops_at = now + AT_LEAST_EVERY
            for stop in self._stops.resume():
                self._chores.add(chore := asyncio.create_task(_quietly(stop)))
                chore.add_done_callback(self._chores.discard)
        return wait

    # ------------------------------------------------------------------ inside

    def _is_known(self, task: Task, at: float) -> bool:
        """Whether a task that was in the queue of its cluster is known to have been there at this time."""
        link = self._nodes.clusters.get(task.node or "")
        return not (link and isinstance(task.status, Submitted)) or (link.known_until or 0.0) >= at

    async def _keep_time(self) -> None:
        with self._bus.waking() as news:
            while True:
                news.clear()
                began, wait = time.thread_time(), AT_LEAST_EVERY
                with guarded("limits and start times"):
                    wait = self.tick()
                # A twentieth of the processor at most, however many tasks there are. Not of the time: a look that a
                # disk or another process has held up for 0.2 s would let what is due next wait for 4 s.
                await asyncio.sleep(max(0.02, 20 * (time.thread_time() - began)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await news.wait()


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    """Run a stop that nobody waits for; a failed one is repeated at the next tick."""
    with guarded("a stop"):
        await work
