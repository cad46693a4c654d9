"""What is remembered of envs: the table `envs` of the state file, by the env's name."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from agentless.model.images.env import EnvRecord
from agentless.stores.state.tinydb import AtomicStorage, damaged

_ENVS = TypeAdapter(dict[str, EnvRecord])


class EnvStore:
    """The records of envs. A file of an older version has none, and the nodes tell them anew."""

    def __init__(self, storage: AtomicStorage) -> None:
        self._storage = storage

    def load(self) -> dict[str, EnvRecord]:
        """All records; raises StateError for what no version of agentless has written."""
        try:
            return _ENVS.validate_python((self._storage.read() or {}).get("envs", {}))
        except ValidationError as error:
            raise damaged("the state file has a damaged record of an env", error) from None

    def save(self, envs: Mapping[str, EnvRecord]) -> None:
        """Keep these and no others, on disk, in one write, before this returns."""
        rows = _ENVS.dump_python(dict(envs), mode="json", exclude_defaults=True)
        self._storage.write({**(self._storage.read() or {}), "envs": rows})
