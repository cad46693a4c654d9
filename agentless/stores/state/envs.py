"""Records of envs: the table `envs` of the state file, by name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from agentless.model.images.env import EnvRecord
from agentless.stores.state.tinydb import AtomicStorage, damaged

_ENVS = TypeAdapter(dict[str, EnvRecord])


class EnvStore:
    """The records of envs. A file of an older version has none; they are rebuilt from the nodes."""

    def __init__(self, storage: AtomicStorage) -> None:
        self._storage = storage

    def load(self) -> dict[str, EnvRecord]:
        """All records. Raises StateError for an invalid one."""
        try:
            return _ENVS.validate_python((self._storage.read() or {}).get("envs", {}))
        except ValidationError as error:
            raise damaged("the state file has a damaged record of an env", error) from None

    def save(self, envs: Mapping[str, EnvRecord]) -> None:
        """Replace all records, in one write, synced to disk."""
        rows = _ENVS.dump_python(dict(envs), mode="json", exclude_defaults=True)
        self._storage.write({**(self._storage.read() or {}), "envs": rows})
