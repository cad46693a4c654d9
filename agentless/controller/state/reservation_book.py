"""The reservations, in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.controller.state.task_stores import TaskStores
from agentless.model.scheduling.reservation import Reservation
from agentless.stores.state.reservations import ReservationStore


class ReservationBook:
    """The reservations, `known` by id. A change is on disk when a method returns; raises StateError otherwise."""

    def __init__(self, store: ReservationStore, stores: TaskStores) -> None:
        self.known = store.load()
        self._store = store
        self._stores = stores

    def add(self, reservations: Mapping[str, Reservation]) -> None:
        """Add reservations in one write."""
        with self._stores.writing("state"):
            self._store.save(reservations.values())
        self.known.update(reservations)

    def remove(self, reservation: str) -> None:
        """Remove a reservation."""
        with self._stores.writing("state"):
            self._store.remove(reservation)
        del self.known[reservation]
