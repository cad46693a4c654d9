"""Follows every sample for how busy the GPUs of tasks are, and adds up who has had how much of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Core
from agentless.errors import StateError, UsageError
from agentless.model.tasks.task import Paused, Running
from agentless.model.usage.figures import By, UsageView
from agentless.model.usage.spent import Load, spent_of
from agentless.rules.nodes.survey import STALE_AFTER
from agentless.rules.usage.usage import Tally, gpus_of, observed

WRITE_EVERY = 60.0
"""Seconds between two writes of how busy the GPUs of live tasks were."""
PAGE = 500
"""Ended tasks that are read at once: a few milliseconds, between which the controller does other things."""
PERIODS = 1000
"""So many periods a span may have at most."""


class Usage:
    """What the tasks of this controller have had. `trouble` is why something of it is not kept or not known, in words.

    `gpu_seconds` are by owner, since the start.
    """

    def __init__(self, core: Core) -> None:
        self.trouble: str | None = None
        self.gpu_seconds: dict[str, float] = defaultdict(float)
        self._core = core
        self._sampled_at: dict[str, float] = {}
        self._counted_at = self._written_at = core.clock.now()
        try:
            core.loads = {task: load for task, load in core.history.accounts.loads().items() if task in core.tasks}
        except StateError as error:
            self.trouble = f"how busy GPUs were so far is not known: {error}"
        core.sampled.append(self._sampled)

    def tick(self) -> None:
        """Count the time that has passed, and write from time to time."""
        self.count()
        if not 0 <= self._counted_at - self._written_at < WRITE_EVERY:
            self._written_at = self._counted_at
            self.write()

    def count(self) -> None:
        """Let the time that has passed be held by those who hold GPUs now."""
        now = self._core.clock.now()
        seconds, self._counted_at = max(0.0, now - self._counted_at), now
        for task in self._core.tasks.values():
            if task.placement and task.placement.gpu_uuids:
                self.gpu_seconds[task.owner] += seconds * len(task.placement.gpu_uuids)

    def write(self) -> None:
        """Keep what a controller after this one goes on from."""
        try:
            self._core.history.accounts.keep_loads(self._core.loads)
            self.trouble = None
        except StateError as error:
            self.trouble = f"how busy GPUs were is not kept: {error}"

    async def view(self, edges: Sequence[float], by: By) -> UsageView:
        """What was had between the first and the last of these times, and between each two of them."""
        if not 2 <= len(edges) <= PERIODS + 1 or any(one >= other for one, other in pairwise(edges)):
            raise UsageError(f"edge: wants 2 to {PERIODS + 1} times, each later than the one before it")
        core, tally = self._core, Tally(edges, by)
        now = core.clock.now()
        live = {task.id: spent_of(task, core.loads.get(task.id, Load()), now) for task in core.tasks.values()}
        page, after = core.history.accounts.page((edges[0], ""), PAGE)
        while page:
            for spent in page:
                if spent.task not in live:
                    tally.add(spent)
            await asyncio.sleep(0)
            page, after = core.history.accounts.page(after, PAGE)
        for running in filter(None, live.values()):
            tally.add(running)
        return await asyncio.to_thread(tally.view, gpus_of(core.cluster(), core.records))

    # ------------------------------------------------------------------ inside

    def _sampled(self, link: NodeLink) -> None:
        core, seen, name = self._core, link.observation, link.node.name
        at, sample, before = seen.sampled_at, seen.sample, self._sampled_at.get(name)
        if sample is None or at is None or at == before:
            return
        self._sampled_at[name] = at
        if before is None or not 0 < at - before <= STALE_AFTER:
            return  # nobody has looked in between
        for task in core.on_node(name):
            held = task.placement.gpu_uuids if task.placement else ()
            if held and isinstance(task.status, (Running, Paused)):
                others = {process.gpu_uuid for process in core.intruders.get(task.id, ())}
                load = core.loads.get(task.id, Load())
                core.loads[task.id] = observed(sample.gpus, held, others, at - before, load)
