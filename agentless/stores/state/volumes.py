"""The last known volumes of each node: the table `volumes` of the state file, by the node's name."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainSerializer, TypeAdapter

from agentless.stores.state.record_table import RecordTable
from agentless.stores.state.tinydb import AtomicStorage

_VOLUMES = TypeAdapter(dict[str, Annotated[frozenset[str], PlainSerializer(sorted)]])


class VolumeStore(RecordTable[frozenset[str]]):
    """The names of volumes by node."""

    def __init__(self, storage: AtomicStorage) -> None:
        super().__init__(storage, "volumes", _VOLUMES, "record of volumes")
