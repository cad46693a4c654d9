"""Reservations: a table of their own in the state file."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError
from tinydb.table import Document

from agentless.model.nodes.device import any_parts
from agentless.model.scheduling.reservation import Reservation
from agentless.stores.state.tinydb import TaskStore, damaged

_RESERVATION = TypeAdapter(Reservation)


class ReservationStore:
    """The reservations by id, in the same file as the tasks."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._table = store.table("reservations")

    def load(self) -> dict[str, Reservation]:
        """All reservations. Raises StateError for an invalid one."""
        try:
            found = [_RESERVATION.validate_python(dict(document)) for document in self._table.all()]
        except ValidationError as error:
            raise damaged("the state file contains a damaged reservation", error) from None
        return {reservation.id: reservation for reservation in found}

    def save(self, reservations: Iterable[Reservation]) -> None:
        """Add or replace these, in one write, synced to disk."""
        kept = {each.id: each for each in reservations}
        if any(any_parts(each.gpus) for each in kept.values()):
            self._store.rise()
        self._table.put(
            {key: Document(_RESERVATION.dump_python(each, mode="json"), doc_id=key) for key, each in kept.items()}  # type: ignore[arg-type]
        )

    def remove(self, reservation: str) -> None:
        """Remove an existing reservation."""
        self._table.remove(doc_ids=[reservation])  # type: ignore[list-item]
