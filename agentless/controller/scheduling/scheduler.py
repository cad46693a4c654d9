"""Plans the queue whenever something has changed, and launches the tasks whose turn it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from agentless.controller.gangs.starts import Starts
from agentless.controller.nodes.link.sampler import SAMPLE_SOON
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.scheduling.queue import Queue
from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.lookup import Lookup
from agentless.errors import AgentlessError, Refused, StateError, UsageError
from agentless.model.caller import Caller
from agentless.model.tasks.task import Pending, Placement, Task
from agentless.model.tasks.task_event import Assigned, Moved, Preempts
from agentless.rules.explain.preemption import preempting
from agentless.rules.scheduling.rank import ranks_after_move
from agentless.rules.tasks.gangs.gangs import members_together

LOOK_EVERY = 2.0
"""Seconds between two looks at a queue to which nothing has happened: GPU memory may be free by now."""

_log = logging.getLogger(__name__)


class Scheduler:
    """Assigns places to pending tasks, and has them launched."""

    def __init__(
        self,
        queue: Queue,
        overflows: Overflows,
        nodes: Nodes,
        ledger: Ledger,
        lookup: Lookup,
        starts: Starts,
        bus: EventBus,
    ) -> None:
        self._queue = queue
        self._overflows = overflows
        self._nodes = nodes
        self._ledger = ledger
        self._lookup = lookup
        self._starts = starts
        self._bus = bus
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start planning."""
        self._work = asyncio.create_task(self._keep_looking(), name="queue")

    async def close(self) -> None:
        """Leave the queue as it is: the next controller goes on with it."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def elsewhere(self, task: str) -> bool:
        """Assign another place to a task that its node could not start; returns whether there is one."""
        placement = self._queue.look().starts.get(task)
        if placement is None:
            return False
        self._assign({task: placement}, "its node could not start it")
        return True

    def move(
        self,
        reference: str,
        position: int | None = None,
        before: str | None = None,
        after: str | None = None,
        *,
        by: Caller,
    ) -> Task:
        """Move a pending task in the queue: to a position from 1 on, or next to another pending task."""
        if [position, before, after].count(None) != 2:
            raise UsageError("no position; specify a number from 1, --before TASK or --after TASK")
        units = members_together(self._queue.waiting())
        first = {each.id: unit[0] for unit in units for each in unit}  # the members of a gang are moved as one
        task, queue = self._waits(reference), [unit[0] for unit in units]
        task = first.get(task.id, task)
        if position is None:
            other = self._waits(before or after or "")
            other = first.get(other.id, other)
            if other.id == task.id:
                raise UsageError(f"cannot move task {task.id} next to itself; specify another task")
            others = [waiting.id for waiting in queue if waiting.id != task.id]
            position = others.index(other.id) + (1 if before else 2)
        for moved, rank in ranks_after_move(queue, task, position).items():
            to = f"to position {position}" if moved == task.id else f"position kept; task {task.id} was moved"
            self._ledger.apply(moved, Moved(rank), f"agentless queue: {to}, by {by}")
        self._queue.moved(task)
        return self._ledger.tasks.live[task.id]

    # ------------------------------------------------------------------ inside

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        with self._bus.waking() as news:
            while True:
                news.clear()
                began = loop.time()
                try:
                    self._begin()
                except StateError:
                    pass  # it is the ledger's trouble, and tried once more at the next look
                except Exception:  # noqa: BLE001 - one bad look must not end the queue
                    _log.exception("queue: unexpected error")
                # A quarter of the time at most, however long the queue is.
                await asyncio.sleep(max(0.005, 3 * (loop.time() - began)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await news.wait()

    def _begin(self) -> None:
        """Plan, and launch what can start now."""
        for link in self._nodes.links.values():
            link.pace(self, SAMPLE_SOON if link.has_stranger and not self._queue.is_empty else None)
        starts = self._queue.look_again().starts
        if starts:
            self._assign(starts, "its turn in the queue")
        for task in starts:
            self._starts.begin(task, self.elsewhere)
        if places := self._queue.plan.places:
            # In one write, before anybody is asked: from here on, nobody else gets these places.
            self._ledger.apply_all(
                {task: (Preempts(place), preempting(place, self._ledger.tasks.live)) for task, place in places.items()}
            )
        # What it changes wakes the next look, where these tasks are launched as any that has a cluster as its target.
        if self._nodes.clusters and (going := self._overflows.going(self._queue.waiting(), self._queue.plan.promises)):
            self._ledger.apply_all(going)

    def _assign(self, starts: Mapping[str, Placement], cause: str) -> None:
        """Assign tasks to their places in one write; their launches count as in progress from here on."""
        self._ledger.tasks.launching.update(starts)
        try:
            self._ledger.apply_all({task: (Assigned(placement), cause) for task, placement in starts.items()})
        except AgentlessError:
            self._ledger.tasks.launching.difference_update(starts)
            raise

    def _waits(self, reference: str) -> Task:
        task = self._lookup.find(reference)
        if not isinstance(task.status, Pending):
            raise Refused(f"task {task.id} is {task.state}: only pending tasks have a position in the queue")
        return task
