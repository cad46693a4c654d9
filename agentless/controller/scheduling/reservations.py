"""Reservations: created, listed, removed, and dropped when they are over."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import Protocol

from agentless.controller.guarded import guarded_item
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.state.reservation_book import ReservationBook
from agentless.errors import NotFound, UsageError
from agentless.model.caller import Caller
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.reservation import Reservation
from agentless.model.view import ReservationView
from agentless.ports import Clock
from agentless.rules.scheduling.timeline.reservations import check_reservation, in_the_way
from agentless.rules.views.nearest import nearest
from agentless.rules.views.publish import reservation_view


class ReservationTerms(Protocol):
    """The request: nodes or exact GPUs, the owner they are for (None: nobody), and when (Unix seconds)."""

    targets: list[str]
    owner: str | None
    begin: float
    end: float
    reason: str


class Reservations:
    """Changes reservations."""

    def __init__(self, book: ReservationBook, nodes: Nodes, ledger: Ledger, clock: Clock) -> None:
        self._book = book
        self._nodes = nodes
        self._ledger = ledger
        self._clock = clock

    async def views(self) -> list[ReservationView]:
        """The reservations that are not over, by their begin, once their nodes have answered."""
        await self._nodes.heard({each.node for each in self._book.known.values() if each.node in self._nodes.links})
        now = self._clock.now()
        found = sorted(self._book.known.values(), key=lambda each: (each.begin, each.id))
        return [self._view(each) for each in found if now < each.end]

    async def reserve(self, request: ReservationTerms, *, by: Caller) -> list[ReservationView]:
        """Reserve all targets or none; raises the problem of the first that cannot be reserved."""
        if not request.targets:
            raise UsageError("no target; specify a node or exact GPUs, such as node1 or node1::0-3")
        made: dict[str, Reservation] = {}
        for target in dict.fromkeys(request.targets):
            needs = parse_target(target)
            if needs.node is None or needs.numa is not None:
                raise UsageError(f"target {target!r}: specify a node or exact GPUs, such as node1 or node1::0-3")
            node = self._nodes.link(needs.node).node.name
            name = _new_id({*self._book.known, *made})
            made[name] = Reservation(
                name, node, needs.indices, request.owner, request.begin, request.end, request.reason.strip(), by.name
            )
        await self._nodes.heard({each.node for each in made.values()})
        now = self._clock.now()
        others = [each for each in self._book.known.values() if now < each.end]
        for each in made.values():
            node = self._nodes.link(each.node).node.name  # the inventory may have changed meanwhile
            check_reservation(each, others, self._nodes.cluster([node]).nodes[node], now)
        self._book.add(made)
        for each in made.values():
            self._tell("reserved", each, f"agentless reserve, by {by}")
        return [self._view(each) for each in made.values()]

    def remove(self, reservation: str, *, by: Caller) -> ReservationView:
        """Remove a reservation; raises NotFound."""
        found = self._book.known.get(reservation)
        if found is None:
            hint = nearest(reservation, self._book.known)
            raise NotFound(f"no reservation {reservation!r}{hint}; to list reservations, run: agentless reservations")
        self._remove(found, f"agentless unreserve, by {by}")
        return self._view(found)

    def tick(self) -> None:
        """Drop the reservations that are over."""
        now = self._clock.now()
        for reservation in [each for each in self._book.known.values() if each.end <= now]:
            with guarded_item(f"reservation {reservation.id}"):
                self._remove(reservation, "expired")

    # ------------------------------------------------------------------ inside

    def _remove(self, reservation: Reservation, cause: str) -> None:
        self._book.remove(reservation.id)
        self._tell("unreserved", reservation, cause)

    def _view(self, reservation: Reservation) -> ReservationView:
        node = (
            self._nodes.cluster([reservation.node]).nodes[reservation.node]
            if reservation.node in self._nodes.links
            else None
        )
        return reservation_view(reservation, in_the_way(reservation, node) if node else (), self._clock.now())

    def _tell(self, event: str, reservation: Reservation, cause: str) -> None:
        now = self._clock.now()
        self._ledger.tell(
            {
                "kind": "reservation",
                "at": now,
                "event": event,
                "cause": f"{reservation.target} {reservation}: {cause}",
                "reservation": asdict(self._view(reservation)),
            }
        )


def _new_id(known: set[str]) -> str:
    """An unused id of five characters, easy to type."""
    while (name := "r" + "".join(secrets.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(4))) in known:
        pass
    return name
