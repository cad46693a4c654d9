"""A table of the state file whose rows have names: it is read and written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from agentless.stores.state.tinydb import AtomicStorage, damaged

_T = TypeVar("_T")


class RecordTable(Generic[_T]):
    """The rows of one table. A file of an older version has none."""

    def __init__(self, storage: AtomicStorage, name: str, rows: TypeAdapter[dict[str, _T]], record: str) -> None:
        """`record` is what one of them is called when it is damaged."""
        self._storage = storage
        self._name = name
        self._rows = rows
        self._record = record

    def load(self) -> dict[str, _T]:
        """All rows; raises StateError for what no version of agentless has written."""
        try:
            return self._rows.validate_python((self._storage.read() or {}).get(self._name, {}))
        except ValidationError as error:
            raise damaged(f"the state file contains a damaged {self._record}", error) from None

    def save(self, rows: Mapping[str, _T]) -> None:
        """Keep these and no others, on disk, in one write, before this returns."""
        table = self._rows.dump_python(dict(rows), mode="json", exclude_defaults=True)
        self._storage.write({**(self._storage.read() or {}), self._name: table})
