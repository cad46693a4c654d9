"""Records of nodes and GPUs: the table `nodes` of the state file, by name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from agentless.model.nodes.node_record import NodeRecord
from agentless.stores.state.tinydb import AtomicStorage, damaged

_NODES = TypeAdapter(dict[str, NodeRecord])


class NodeRecordStore:
    """The records of nodes. A file of an older version has none."""

    def __init__(self, storage: AtomicStorage) -> None:
        self._storage = storage

    def load(self) -> dict[str, NodeRecord]:
        """All records. Raises StateError for an invalid one."""
        try:
            return _NODES.validate_python((self._storage.read() or {}).get("nodes", {}))
        except ValidationError as error:
            raise damaged("the state file has a damaged record of a node", error) from None

    def save(self, nodes: Mapping[str, NodeRecord]) -> None:
        """Replace all records, in one write, synced to disk."""
        rows = _NODES.dump_python(dict(nodes), mode="json", exclude_defaults=True)
        self._storage.write({**(self._storage.read() or {}), "nodes": rows})
