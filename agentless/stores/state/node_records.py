"""Records of nodes and GPUs: the table `nodes` of the state file, by name."""

from __future__ import annotations

from pydantic import TypeAdapter

from agentless.model.nodes.node_record import NodeRecord
from agentless.stores.state.record_table import RecordTable
from agentless.stores.state.tinydb import AtomicStorage

_NODES = TypeAdapter(dict[str, NodeRecord])


class NodeRecordStore(RecordTable[NodeRecord]):
    """The records of nodes."""

    def __init__(self, storage: AtomicStorage) -> None:
        super().__init__(storage, "nodes", _NODES, "record of a node")
