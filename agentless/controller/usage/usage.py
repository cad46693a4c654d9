"""GPU usage: how busy the GPUs of tasks are, and what each owner has used."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus, NodeObserved
from agentless.controller.state.tasks import Tasks
from agentless.errors import StateError, UsageError
from agentless.model.tasks.task import Paused, Running
from agentless.model.usage.figures import By, UsageView
from agentless.model.usage.run import gpus_held
from agentless.model.usage.spent import GpuActivity, spent_of
from agentless.ports import Clock
from agentless.rules.nodes.survey import STALE_AFTER
from agentless.rules.usage.usage import Tally, gpus_of, observed

WRITE_EVERY = 60.0
"""Seconds between two writes of how busy the GPUs of live tasks were."""
PAGE = 500
"""Ended tasks that are read at once: a few milliseconds, between which the controller does other things."""
PERIODS = 1000
"""So many periods a span may have at most."""


class Usage:
    """The usage by the tasks of this controller. `trouble` is why some of it is not stored or not known.

    `gpu_seconds` are by owner, since the start.
    """

    def __init__(self, tasks: Tasks, nodes: Nodes, records: NodeRecords, bus: EventBus, clock: Clock) -> None:
        self.trouble: str | None = None
        self.gpu_seconds: dict[str, float] = defaultdict(float)
        self._tasks = tasks
        self._nodes = nodes
        self._records = records
        self._clock = clock
        self._sampled_at: dict[str, float] = {}
        self._counted_at = self._written_at = self._clock.now()
        try:
            self._tasks.loads = {
                task: load for task, load in self._tasks.history.accounts.loads().items() if task in self._tasks.live
            }
        except StateError as error:
            self.trouble = f"cannot read earlier GPU load: {error}"
        bus.subscribe(NodeObserved, self._observed)

    def tick(self) -> None:
        """Count the time since the last tick, and write once a minute."""
        self.count()
        if not 0 <= self._counted_at - self._written_at < WRITE_EVERY:
            self._written_at = self._counted_at
            self.write()

    def count(self) -> None:
        """Add the time since the last count to the owners of allocated GPUs."""
        now = self._clock.now()
        seconds, self._counted_at = max(0.0, now - self._counted_at), now
        for task in self._tasks.live.values():
            if gpus := gpus_held(task):
                self.gpu_seconds[task.owner] += seconds * gpus

    def write(self) -> None:
        """Store the loads for the next controller."""
        try:
            self._tasks.history.accounts.keep_loads(self._tasks.loads)
            self.trouble = None
        except StateError as error:
            self.trouble = f"cannot record GPU load: {error}"

    async def view(self, edges: Sequence[float], by: By) -> UsageView:
        """The usage between the first and the last of these times, and between each two of them."""
        if not 2 <= len(edges) <= PERIODS + 1 or any(one >= other for one, other in pairwise(edges)):
            raise UsageError(f"edge: needs 2 to {PERIODS + 1} times in increasing order")
        tally = Tally(edges, by, self._nodes.clusters)
        now = self._clock.now()
        live = {
            task.id: spent_of(task, self._tasks.loads.get(task.id, GpuActivity()), now)
            for task in self._tasks.live.values()
        }
        page, after = self._tasks.history.accounts.page((edges[0], ""), PAGE)
        while page:
            for spent in page:
                if spent.task not in live:
                    tally.add(spent)
            await asyncio.sleep(0)
            page, after = self._tasks.history.accounts.page(after, PAGE)
        for running in filter(None, live.values()):
            tally.add(running)
        return await asyncio.to_thread(tally.view, *gpus_of(self._nodes.cluster(), self._records.known))

    # ------------------------------------------------------------------ inside

    def _observed(self, node: NodeObserved) -> None:
        seen, name = node.observation, node.node
        at, sample, before = seen.sampled_at, seen.sample, self._sampled_at.get(name)
        if sample is None or at is None or at == before:
            return
        self._sampled_at[name] = at
        if before is None or not 0 < at - before <= STALE_AFTER:
            return  # nobody has looked in between
        for task in self._tasks.on_node(name):
            held = task.placement.gpu_uuids if task.placement else ()
            if held and isinstance(task.status, (Running, Paused)):
                others = {process.gpu_uuid for process in self._tasks.intruders.get(task.id, ())}
                load = self._tasks.loads.get(task.id, GpuActivity())
                self._tasks.loads[task.id] = observed(sample.gpus, held, others, at - before, load)
