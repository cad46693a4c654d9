"""Nodes that are drained, and what people let in again."""

from __future__ import annotations

from dataclasses import replace

from agentless.controller.nodes.news import NodeNews
from agentless.controller.nodes.records import NodeRecords
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.events import EventBus
from agentless.controller.state.tasks import Tasks
from agentless.errors import Refused, UsageError
from agentless.inventory.inventory import Inventory
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.exclusion import Drain, HealthPolicy
from agentless.ports import Clock
from agentless.rules.nodes.exclusion import drain_words, resumed

REASON = 200
"""So many characters a reason has at most: it is said in the queue, for every task that waits."""


class Exclusions:
    """Keeps nodes out, and lets them and their GPUs in again. `policy` is the inventory's.

    `by` is who asks, None: the controller's own owner.
    """

    def __init__(
        self, nodes: Nodes, records: NodeRecords, news: NodeNews, tasks: Tasks, bus: EventBus, clock: Clock
    ) -> None:
        self.policy = HealthPolicy()
        self._nodes = nodes
        self._records = records
        self._news = news
        self._tasks = tasks
        self._bus = bus
        self._clock = clock

    def on_inventory(self, inventory: Inventory) -> None:
        """Go by its policy."""
        self.policy = inventory.health

    def drain(self, name: str, reason: str | None = None, by: str | None = None) -> Node:
        """From now on nothing new starts on a node. Where that is so already, a reason takes the place of the other."""
        by = by or self._tasks.owner
        node = self._nodes.link(name).node.name
        if reason is not None and (len(reason) > REASON or not reason.isprintable()):
            raise UsageError(f"--reason wants one line of plain text, of at most {REASON} characters")
        record = self._records.of(node)
        drain = record.drain or Drain(by, self._clock.now())
        if reason is not None:
            drain = replace(drain, by=by, reason=reason)
        if drain != record.drain:
            self._records.keep(node, replace(record, drain=drain))
            self._news.note(node, "drained", drain_words(drain))
        return self._node(node)

    def resume(self, name: str, gpu: int | None = None, by: str | None = None) -> tuple[Node, tuple[str, ...]]:
        """Let a node in again with all its GPUs, or only its GPU of this index; and in words what had kept them out."""
        link = self._nodes.link(name)
        node, seen = link.node.name, link.observation
        record = self._records.of(node)
        if gpu is not None and all(gpu != known.reading.index for known in record.gpus.values()):
            raise Refused(f"GPU {gpu} is not there; agentless gpus {node} lists those of {node}")
        there = seen.sample if seen.error is None else None
        after, lifted = resumed(record, gpu, there, seen.xids, self.policy)
        if lifted:
            self._records.keep(node, after)
        if gpu is None and (broken := link.mended()):
            lifted = (*lifted, f"was degraded: {broken}")
        if lifted:
            self._news.note(node, "resumed", f"by {by or self._tasks.owner}; {'; '.join(lifted)}")
        return self._node(node), lifted

    async def empty(self, name: str, within: float) -> Node:
        """The node when no task lives on it any more or it is not drained, or as it is after so many seconds."""

        def is_over() -> bool:
            node = self._node(name)
            return not node.drained or node.tasks == 0

        await self._bus.until(is_over, within)
        return self._node(name)

    # ------------------------------------------------------------------ inside

    def _node(self, name: str) -> Node:
        return self._nodes.cluster([self._nodes.link(name).node.name]).nodes[name]
