"""What is remembered of nodes: drains, known GPUs, and excluded GPUs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agentless.controller.state.task_stores import TaskStores
from agentless.errors import StateError
from agentless.model.nodes.node import EngineFacts
from agentless.model.nodes.node_record import NodeRecord
from agentless.rules.nodes.gpu_exclusion import remembered
from agentless.stores.state.node_records import NodeRecordStore


class NodeRecords:
    """The records of nodes, `known` by name, and on disk."""

    def __init__(self, store: NodeRecordStore, stores: TaskStores) -> None:
        self.known = {name: replace(record, gpus=remembered(record.gpus)) for name, record in store.load().items()}
        self._store = store
        self._stores = stores
        self._unsaved = False

    def of(self, node: str) -> NodeRecord:
        """The record of a node, an empty one if there is none."""
        return self.known.get(node) or NodeRecord()

    def keep(self, node: str, record: NodeRecord) -> None:
        """Set a record; it is on disk when this returns. Raises StateError."""
        with self._stores.writing("state"):
            self._store.save({**self.known, node: record})
        self.known[node] = record
        self._unsaved = False

    def note(self, node: str, record: NodeRecord) -> None:
        """Set a record in memory at once; `flush` writes it."""
        self.known[node] = record
        self._unsaved = True

    def note_engine(self, node: str, engine: EngineFacts | None, asked: float) -> None:
        """Take down where the engine keeps containers, as a look has found that left at `asked`; on disk at once."""
        record, keeps = self.of(node), engine and engine.keeps
        if keeps and keeps != record.keeps:
            self.note(node, record.switched(keeps, asked))
            self.flush()

    def flush(self) -> None:
        """Write pending records: new GPUs, and what could not be written before."""
        if self._unsaved:
            with suppress(StateError), self._stores.writing("state"):
                self._store.save(self.known)
                self._unsaved = False
