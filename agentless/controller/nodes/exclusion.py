"""The gate: nodes that are drained, and GPUs that are kept out because something was found to be wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from agentless.controller.nodes.connection import Link
from agentless.controller.nodes.registry import Core
from agentless.errors import Refused, StateError, UsageError
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.exclusion import Drain, GpuRecord, HealthPolicy, NodeRecord
from agentless.rules.nodes.exclusion import drain_words, looked, remembered, resumed
from agentless.stores.state.exclusions import GateStore

REASON = 200
"""So many characters a reason has at most: it is said in the queue, for every task that waits."""


class Gate:
    """Keeps nodes and GPUs out, and lets them in again. `policy` is the inventory's.

    `by` is who asks, None: the controller's own owner.
    """

    def __init__(self, core: Core, store: GateStore) -> None:
        self.policy = HealthPolicy()
        self._core = core
        self._store = store
        self._unsaved = False
        core.records = {name: replace(record, gpus=remembered(record.gpus)) for name, record in store.load().items()}
        core.examine = self.examine

    def drain(self, name: str, reason: str | None = None, by: str | None = None) -> Node:
        """From now on nothing new starts on a node. Where that is so already, a reason takes the place of the other."""
        core, by = self._core, by or self._core.owner
        node = core.link(name).node.name
        if reason is not None and (len(reason) > REASON or not reason.isprintable()):
            raise UsageError(f"--reason wants one line of plain text, of at most {REASON} characters")
        record = core.records.get(node, NodeRecord())
        drain = record.drain or Drain(by, core.clock.now())
        if reason is not None:
            drain = replace(drain, by=by, reason=reason)
        if drain != record.drain:
            self._keep(node, replace(record, drain=drain))
            core.note_node(node, "drained", drain_words(drain))
        return self._node(node)

    def resume(self, name: str, gpu: int | None = None, by: str | None = None) -> tuple[Node, tuple[str, ...]]:
        """Let a node in again with all its GPUs, or only its GPU of this index; and in words what had kept them out."""
        core = self._core
        link = core.link(name)
        node, seen = link.node.name, link.observation
        record = core.records.get(node, NodeRecord())
        if gpu is not None and all(gpu != known.reading.index for known in record.gpus.values()):
            raise Refused(f"GPU {gpu} is not there; agentless gpus {node} lists those of {node}")
        there = seen.sample if seen.error is None else None
        after, lifted = resumed(record, gpu, there, seen.faults, self.policy)
        if lifted:
            self._keep(node, after)
        if gpu is None and (broken := link.mended()):
            lifted = (*lifted, f"was degraded: {broken}")
        if lifted:
            core.note_node(node, "resumed", f"by {by or core.owner}; {'; '.join(lifted)}")
        return self._node(node), lifted

    async def empty(self, name: str, within: float) -> Node:
        """The node when no task lives on it any more or it is not drained, or as it is after so many seconds."""

        def is_over() -> bool:
            node = self._node(name)
            return not node.drained or node.tasks == 0

        await self._core.hub.until(is_over, within)
        return self._node(name)

    def examine(self, link: Link) -> Iterable[tuple[str, str]]:
        """Look at the health of a node's GPUs; what has happened to them, each as an event and its cause."""
        core, node, seen = self._core, link.node.name, link.observation
        if seen.error is not None or seen.sample is None:
            return ()
        before = core.records.get(node, NodeRecord())
        own = tuple(reading for reading in seen.sample.gpus if core.homes.get(reading.uuid, node) == node)
        sample = seen.sample if len(own) == len(seen.sample.gpus) else replace(seen.sample, gpus=own)
        after = looked(core.records, node, sample, seen.faults, core.clock.now(), self.policy)
        if after is before:
            return ()
        core.records[node] = after  # kept out at once, whether or not the disk has room
        self._unsaved = True
        happened = [
            each for uuid, gpu in after.gpus.items() for each in self._changes(node, before.gpus.get(uuid), gpu)
        ]
        if happened:
            self.flush()
        return happened

    def flush(self) -> None:
        """Write what is not written yet: what there was no room for, and GPUs that are new, all of them at once."""
        if self._unsaved:
            with suppress(StateError), self._core.writing("state"):
                self._store.save(self._core.records)
                self._unsaved = False

    # ------------------------------------------------------------------ inside

    def _keep(self, node: str, record: NodeRecord) -> None:
        """What a person has said is on disk before anybody hears of it."""
        with self._core.writing("state"):
            self._store.save({**self._core.records, node: record})
        self._core.records[node] = record
        self._unsaved = False

    def _changes(self, node: str, before: GpuRecord | None, gpu: GpuRecord) -> Iterable[tuple[str, str]]:
        known = before.troubles if before else ()
        for trouble in gpu.troubles:
            if trouble not in known:
                words = f"GPU {gpu.reading.index}: {trouble.reason}"
                for task in self._core.on_node(node):
                    if task.placement and gpu.reading.uuid in task.placement.gpu_uuids:
                        self._core.publish(task, "unhealthy", words)
                yield "unhealthy", words
        for trouble in known:
            if trouble not in gpu.troubles:
                yield "resumed", f"GPU {gpu.reading.index}: found no longer (health: resume): {trouble.reason}"

    def _node(self, name: str) -> Node:
        return self._core.cluster([self._core.link(name).node.name]).nodes[name]
