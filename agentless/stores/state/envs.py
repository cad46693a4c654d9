"""Records of envs: the table `envs` of the state file, by name."""

from __future__ import annotations

from pydantic import TypeAdapter

from agentless.model.images.env import EnvRecord
from agentless.stores.state.record_table import RecordTable
from agentless.stores.state.tinydb import AtomicStorage

_ENVS = TypeAdapter(dict[str, EnvRecord])


class EnvStore(RecordTable[EnvRecord]):
    """The records of envs. A file of an older version has none, and the nodes tell them anew."""

    def __init__(self, storage: AtomicStorage) -> None:
        super().__init__(storage, "envs", _ENVS, "record of an env")
