"""What is remembered of nodes: that they are drained, which GPUs they have, and which of those are kept out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from agentless.controller.state.stores import Stores
from agentless.errors import StateError
from agentless.model.nodes.exclusion import NodeRecord
from agentless.rules.nodes.exclusion import remembered
from agentless.stores.state.exclusions import GateStore


class NodeRecords:
    """The records, `known` by the name of the node, and on disk."""

    def __init__(self, store: GateStore, stores: Stores) -> None:
        self.known = {name: replace(record, gpus=remembered(record.gpus)) for name, record in store.load().items()}
        self._store = store
        self._stores = stores
        self._unsaved = False

    def of(self, node: str) -> NodeRecord:
        """That of a node, an empty one where there is none."""
        return self.known.get(node) or NodeRecord()

    def keep(self, node: str, record: NodeRecord) -> None:
        """What a person has said is on disk before anybody hears of it; raises StateError."""
        with self._stores.writing("state"):
            self._store.save({**self.known, node: record})
        self.known[node] = record
        self._unsaved = False

    def note(self, node: str, record: NodeRecord) -> None:
        """What was seen is so at once, whether or not the disk has room: `flush` writes it."""
        self.known[node] = record
        self._unsaved = True

    def flush(self) -> None:
        """Write what is not written yet: what there was no room for, and GPUs that are new, all of them at once."""
        if self._unsaved:
            with suppress(StateError), self._stores.writing("state"):
                self._store.save(self.known)
                self._unsaved = False
