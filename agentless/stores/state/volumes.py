"""The last known volumes of each node: the table `volumes` of the state file, by the node's name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from agentless.stores.state.tinydb import AtomicStorage, damaged

_VOLUMES = TypeAdapter(dict[str, frozenset[str]])


class VolumeStore:
    """The names of volumes by node. A file of an older version has none."""

    def __init__(self, storage: AtomicStorage) -> None:
        self._storage = storage

    def load(self) -> dict[str, frozenset[str]]:
        """All of them. Raises StateError for an invalid entry."""
        try:
            return _VOLUMES.validate_python((self._storage.read() or {}).get("volumes", {}))
        except ValidationError as error:
            raise damaged("the state file has a damaged record of volumes", error) from None

    def save(self, volumes: Mapping[str, frozenset[str]]) -> None:
        """Replace all of them, in one write, synced to disk."""
        rows = {node: sorted(names) for node, names in volumes.items()}
        self._storage.write({**(self._storage.read() or {}), "volumes": rows})
