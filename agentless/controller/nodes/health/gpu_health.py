"""GPU health: faulty GPUs are excluded, as the health policy of the inventory says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentless.controller.nodes.health.homes import Homes
from agentless.controller.nodes.health.records import NodeRecords
from agentless.controller.state.ledger import Ledger
from agentless.inventory.inventory import Inventory
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node_record import GpuRecord, HealthPolicy, NodeRecord
from agentless.model.tasks.task import Task
from agentless.ports import Clock
from agentless.rules.nodes.gpu_exclusion import looked, with_external
from agentless.rules.nodes.parts import removed_slices


@dataclass(frozen=True, slots=True)
class Examined:
    """The record of a node after an examination, and what has happened, as pairs of event and cause."""

    record: NodeRecord | None
    happened: tuple[tuple[str, str], ...] = ()


class GpuHealth:
    """Examines the GPUs of nodes. `policy` is the inventory's."""

    def __init__(self, records: NodeRecords, homes: Homes, ledger: Ledger, clock: Clock) -> None:
        self.policy = HealthPolicy()
        self._records = records
        self._homes = homes
        self._ledger = ledger
        self._clock = clock
        self._removed: dict[str, frozenset[tuple[str, str]]] = {}

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its health policy."""
        self.policy = inventory.health

    def examine(self, node: str, seen: Observation) -> Examined:
        """Update the record of a node from an observation."""
        known = self._records.known
        if seen.error is not None or seen.sample is None:
            return Examined(known.get(node))
        tasks = self._ledger.tasks.on_node(node)
        self._look_for_slices(node, tasks, seen.sample)
        before = self._records.of(node)
        own = tuple(reading for reading in seen.sample.gpus if self._homes.known.get(reading.gpu, node) == node)
        sample = seen.sample if len(own) == len(seen.sample.gpus) else replace(seen.sample, gpus=own)
        held = {uuid for task in tasks if task.placement for uuid in task.placement.gpu_uuids}
        sample = with_external(sample, seen.host, before, held)
        after = looked(known, node, sample, seen.faults, self._clock.now(), self.policy)
        if after is before:
            return Examined(known.get(node))
        self._records.note(node, after)
        happened = tuple(
            each for uuid, gpu in after.gpus.items() for each in self._changes(node, before.gpus.get(uuid), gpu)
        )
        if happened:
            self._records.flush()
        return Examined(after, happened)

    def _look_for_slices(self, node: str, tasks: Iterable[Task], sample: GpuSample) -> None:
        """Tell the tasks whose slice of a GPU is gone, each once. Slices go when people reconfigure a GPU."""
        if sample.error is not None:
            return
        removed = {
            (task.id, uuid): (task, number)
            for task in tasks
            if task.placement
            for uuid, number in removed_slices(task.placement, sample)
        }
        for key, (task, number) in removed.items():
            if key not in self._removed.get(node, ()):
                self._ledger.publish(task, "unhealthy", f"GPU {number}: disappeared; its GPU was reconfigured")
        self._removed[node] = frozenset(removed)

    def _changes(self, node: str, before: GpuRecord | None, gpu: GpuRecord) -> Iterable[tuple[str, str]]:
        known = before.troubles if before else ()
        for trouble in gpu.troubles:
            if trouble not in known:
                words = f"GPU {gpu.reading.index}: {trouble.reason}"
                for task in self._ledger.tasks.on_node(node):
                    if task.placement and gpu.reading.uuid in task.placement.gpu_uuids:
                        self._ledger.publish(task, "unhealthy", words)
                yield "unhealthy", words
        for trouble in known:
            if trouble not in gpu.troubles:
                yield "resumed", f"GPU {gpu.reading.index}: recovered (health: resume): {trouble.reason}"
