"""The VPS by name: the table `vps` of the state file, with the id of each."""

from __future__ import annotations

from pydantic import TypeAdapter

from agentless.stores.state.record_table import RecordTable
from agentless.stores.state.tinydb import AtomicStorage

_IDS = TypeAdapter(dict[str, str])


class VpsStore(RecordTable[str]):
    """The task ids of VPS by name."""

    def __init__(self, storage: AtomicStorage) -> None:
        super().__init__(storage, "vps", _IDS, "record of VPS")
