"""Drain and resume: people exclude nodes, and include nodes and GPUs again."""

from __future__ import annotations

from dataclasses import replace

from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.nodes.news import NodeNews
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import EventBus
from agentless.errors import Refused, UsageError
from agentless.inventory.inventory import Inventory
from agentless.model.caller import Caller
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node_record import Drain, HealthPolicy
from agentless.ports import Clock
from agentless.rules.nodes.gpu_exclusion import drain_words, resumed, undrained

REASON = 200
"""Characters of a reason at most: it is shown for every waiting task."""


class Drains:
    """Excludes nodes, and includes them and their GPUs again. `policy` is the inventory's."""

    def __init__(self, nodes: Nodes, records: NodeRecords, news: NodeNews, bus: EventBus, clock: Clock) -> None:
        self.policy = HealthPolicy()
        self._nodes = nodes
        self._records = records
        self._news = news
        self._bus = bus
        self._clock = clock

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its health policy."""
        self.policy = inventory.health

    def drain(self, name: str, reason: str | None = None, *, by: Caller) -> Node:
        """Start nothing new on a node. If it is drained already, a new reason replaces the old one."""
        node = self._nodes.link(name).node.name
        if reason is not None and (len(reason) > REASON or not reason.isprintable()):
            raise UsageError(f"--reason must be one line of plain text of at most {REASON} characters")
        record = self._records.of(node)
        drain = record.drain or Drain(by.name, self._clock.now())
        if reason is not None:
            drain = replace(drain, by=by.name, reason=reason)
        if drain != record.drain:
            self._records.keep(node, replace(record, drain=drain))
            self._news.note(node, "drained", drain_words(drain))
        return self._node(node)

    def resume(
        self, name: str, gpu: int | None = None, *, drain_only: bool = False, by: Caller
    ) -> tuple[Node, tuple[str, ...]]:
        """Include a node with all its GPUs again, or only the GPU of this index; returns also why it was excluded.

        `drain_only`: only the drain is lifted.
        """
        if drain_only and gpu is not None:
            raise UsageError("--drain-only is about the whole node, not about a --gpu")
        link = self._nodes.link(name)
        node, seen = link.node.name, link.observation
        record = self._records.of(node)
        if gpu is not None and all(gpu != known.reading.index for known in record.gpus.values()):
            raise Refused(f"{node} has no GPU {gpu}; to list its GPUs, run: agentless gpus {node}")
        there = seen.sample if seen.error is None else None
        if drain_only:
            after, lifted = undrained(record)
        else:
            after, lifted = resumed(record, gpu, there, seen.faults, self.policy)
        if lifted:
            self._records.keep(node, after)
        if gpu is None and not drain_only and (broken := link.breakdowns.mended()):
            lifted = (*lifted, f"was degraded: {broken}")
        if lifted:
            self._news.note(node, "resumed", f"by {by}; {'; '.join(lifted)}")
        return self._node(node), lifted

    async def empty(self, name: str, within: float) -> Node:
        """Wait, at most so many seconds, until a node has no live task or is not drained; returns the node."""

        def is_over() -> bool:
            node = self._node(name)
            return not node.drained or node.tasks == 0

        await self._bus.until(is_over, within)
        return self._node(name)

    # ------------------------------------------------------------------ inside

    def _node(self, name: str) -> Node:
        return self._nodes.cluster([self._nodes.link(name).node.name]).nodes[name]
