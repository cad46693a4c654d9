"""The places for a gang at one time for which the fewest give way: branch and bound.

Each victim counts on the node where it is, so that nodes can be compared one by one. This leaves out members of
preemptible gangs that are on other nodes than the places. Where it does, one of these gangs is decided in two cases: it
gives way and counts in full, or it stays. The case with the lowest bound comes next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from itertools import count, islice
from typing import NamedTuple

from agentless.model.nodes.cluster import Allocation
from agentless.model.scheduling.sharing import Sharing
from agentless.rules.scheduling.preemption.assignment import cheapest
from agentless.rules.scheduling.preemption.victims import Preemption, fewest_with
from agentless.rules.scheduling.timeline.node import NodeTimeline
from agentless.rules.scheduling.together import Want, fabric

TRIED = 2000
"""The most nodes on which somebody's place is decided, over all cases that are compared.

After that, the best one found counts, without anybody who need not give way, or one that is grown from a place.
"""
STARTS = 64
"""The most places from which one is grown."""
GROWN = 4000
"""The most nodes on which somebody's place is decided for that."""
A_VICTIM = 1e12
"""What a victim counts in GPU-seconds: more than any work."""

ROUNDED = 1e-9
"""By so much, as a share, a sum may be wrong."""

Price = tuple[int, float]
"""How many give way, and the work that they have done."""

Names = frozenset[str]
"""Tasks, in whole gangs."""

NOBODY = Names()


@dataclass(frozen=True, slots=True)
class Option:
    """A place for one member, and those who give way for it with all of their gangs; the `price` of those here."""

    price: Price
    node: NodeTimeline
    victims: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """The price as one number."""
        return self.price[0] * A_VICTIM + self.price[1]

    @property
    def order(self) -> tuple[Price, int]:
        """The cheapest first, then by the inventory."""
        return self.price, self.node.order


@dataclass(frozen=True, slots=True)
class Case:
    """The best places if these tasks give way and those stay. All victims cost `bound` or more."""

    going: Names
    staying: Names
    chosen: Sequence[Option]
    bound: Price

    @property
    def victims(self) -> list[str]:
        """All who give way."""
        return list(dict.fromkeys((*sorted(self.going), *(name for each in self.chosen for name in each.victims))))

    @property
    def asks_more(self) -> bool:
        """Whether it takes more than those who give way anyway."""
        return any(each.victims for each in self.chosen)

    @property
    def uncounted(self) -> list[str]:
        """The victims that `bound` leaves out."""
        counted = {name for each in self.chosen for name in each.victims if name in each.node.yielding}
        return [name for name in self.victims if name not in counted and name not in self.going]


class Spot(NamedTuple):
    """A node for a member of a kind, where of those who are there, these give way and those stay.

    `whole`: victims on other nodes are counted, too.
    """

    node: NodeTimeline
    kind: int
    going: Names
    staying: Names
    whole: bool


class Lender(NamedTuple):
    """One who may give way: the GPUs, and the share in the price of the gang of each member here, or on all nodes."""

    task: str
    gpus: int
    here: tuple[float, float]
    whole: tuple[float, float]


class Cheapest:
    """The places for a member, the cheapest first. A node is only looked at when it may be the next, by its bound."""

    def __init__(self, bounds: Iterable[tuple[Price, Spot]], look: Callable[[Spot], Option | None]) -> None:
        self._coming = [(bound, spot.node.order, spot) for bound, spot in bounds]
        heapify(self._coming)
        self._look = look
        self._seen = list[tuple[Price, int, Option]]()
        self._sorted = list[Option]()

    def __iter__(self) -> Iterator[Option]:
        """From the first one on, each time."""
        at = 0
        while at < len(self._sorted) or self._finds_next():
            yield self._sorted[at]
            at += 1

    def _finds_next(self) -> bool:
        while self._coming and (not self._seen or self._coming[0][:2] < self._seen[0][:2]):
            if option := self._look(heappop(self._coming)[-1]):
                heappush(self._seen, (*option.order, option))
        if self._seen:
            self._sorted.append(heappop(self._seen)[-1])
            return True
        return False


class GangVictims:
    """Finds places for a gang. `now`: only those give way who may be asked now."""

    def __init__(
        self, giving: Preemption, nodes: Sequence[NodeTimeline], wants: Sequence[Want], moment: float, *, now: bool
    ) -> None:
        self._giving = giving
        self._moment = moment
        self._now = now
        self._kinds = list(dict.fromkeys(wants))
        self._members = [self._kinds.index(want) for want in wants]
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._homes = {name: node for node in nodes for name in node.yielding}
        self._lenders = dict[str, list[Lender]]()
        self._open = dict[tuple[str, Sharing], int]()
        self._prices = dict[tuple[str, ...], Price]()
        self._bounds = dict[Spot, Price | None]()
        self._known = dict[Spot, Option | None]()
        self._looked = 0
        self._undecided = dict[tuple[int, bool], Cheapest]()

    def fewest(self) -> Case | None:
        """The case with the fewest victims of those that are compared; None if the gang fits in none."""
        best, is_proved = self._compared()
        cases = [self._needed(case) for case in (best, None if is_proved else self._grown()) if case]
        return min(cases, key=lambda case: self._giving.price(case.victims), default=None)

    # ------------------------------------------------------------------ inside

    def _compared(self) -> tuple[Case | None, bool]:
        """The best of the cases that are compared, and whether no other one is better."""
        best: tuple[Price, Case] | None = None
        number, first = count(), self._case(NOBODY, NOBODY)
        coming = [(first.bound, next(number), first)] if first else []
        while self._looked < TRIED:
            if not coming or (best and coming[0][0] >= best[0]):
                return best and best[1], True
            case = heappop(coming)[-1]
            price = self._giving.price(case.victims)
            if best is None or price < best[0]:
                best = price, case
            if not (uncounted := case.uncounted):
                return best[1], True  # it costs its bound, and no other case costs less
            gang = max((Names(self._giving.with_its_gang(each)) for each in uncounted), key=len)
            for going, staying in ((case.going | gang, case.staying), (case.going, case.staying | gang)):
                if another := self._case(going, staying):
                    heappush(coming, (another.bound, next(number), another))
        return best and best[1], False

    def _grown(self) -> Case | None:
        """The best that is grown from one of the cheapest places."""
        grown, most = [self._grown_from(NOBODY)], self._looked + GROWN
        for first in islice(self._undecided[0, True], STARTS):
            if self._looked > most:
                break
            grown.append(self._grown_from(Names(first.victims)))
        return min(filter(None, grown), key=lambda case: self._giving.price(case.victims), default=None)

    def _grown_from(self, going: Names) -> Case | None:
        """If these give way: the cheapest place, with all of the gangs there, then the cheapest one after that."""
        while (case := self._case(going, NOBODY, whole=True)) and case.asks_more:
            going |= Names(min((each for each in case.chosen if each.victims), key=_order).victims)
        return case

    def _needed(self, case: Case) -> Case:
        """The case without anybody whose room is not needed."""
        victims = case.victims
        by_price = sorted(victims, key=lambda each: self._giving.price((each,)), reverse=True)
        for gang in dict.fromkeys(Names(self._giving.with_its_gang(victim)) for victim in by_price):
            if (found := self._case(Names(victims) - gang, NOBODY)) and not found.asks_more:
                case, victims = found, found.victims
        return case

    def _case(self, going: Names, staying: Names, *, whole: bool = False) -> Case | None:
        """`whole`: victims on other nodes are counted too, and on each node anew, so that there is no bound."""
        decided = self._decided(going, staying)
        self._looked += 1 + len(decided)
        options = [self._options(kind, decided, whole=whole) for kind in range(len(self._kinds))]
        chosen: Sequence[Option] | None
        if len(options) == 1:
            # Neighbours in the fabric are neighbours by rank.
            chosen = sorted(options[0], key=lambda each: (fabric(each.node), each.node.order))
        else:
            chosen = _assigned([options[kind] for kind in self._members])
        if chosen is None or len(chosen) < len(self._members):
            return None
        number, work = self._giving.price(going)
        bound = number + sum(each.price[0] for each in chosen), work + sum(each.price[1] for each in chosen)
        return Case(going, staying, chosen, bound)

    def _options(self, kind: int, decided: Mapping[str, tuple[Names, Names]], *, whole: bool) -> list[Option]:
        """The cheapest places for a member, as many as there are members."""
        if (kind, whole) not in self._undecided:
            self._undecided[kind, whole] = self._cheapest(
                Spot(node, kind, NOBODY, NOBODY, whole) for node in self._nodes
            )
        others = (each for each in self._undecided[kind, whole] if each.node.name not in decided)
        these = self._cheapest(Spot(self._by_name[name], kind, *there, whole) for name, there in decided.items())
        return list(islice(merge(these, others, key=_order), len(self._members)))

    def _decided(self, going: Names, staying: Names) -> dict[str, tuple[Names, Names]]:
        """Who of them is on each of their nodes."""
        there = dict[str, tuple[list[str], list[str]]]()
        for at, names in enumerate((going, staying)):
            for name in names:
                there.setdefault(self._homes[name].name, ([], []))[at].append(name)
        return {node: (Names(goes), Names(stays)) for node, (goes, stays) in there.items()}

    def _cheapest(self, spots: Iterable[Spot]) -> Cheapest:
        bounds = list[tuple[Price, Spot]]()
        for spot in spots:
            if spot not in self._bounds:
                self._bounds[spot] = self._bound(spot)
            if bound := self._bounds[spot]:
                bounds.append((bound, spot))
        return Cheapest(bounds, self._on)

    def _bound(self, spot: Spot) -> Price | None:
        """A place there costs so much or more. None if there is none."""
        node, (shape, _), decided = spot.node, self._kinds[spot.kind], spot.going | spot.staying
        if node.name not in self._lenders:
            self._lenders[node.name] = [self._lender(each.task, node) for each in self._giving.unasked(node)]
        able = [each for each in self._lenders[node.name] if each.task not in decided]
        number = fewest_with(
            shape.gpus - self._open_on(node, shape.sharing.rough) - sum(len(node.gpus_of(name)) for name in spot.going),
            [each.gpus for each in able],
        )
        if not number:
            return None if number is None else (0, 0.0)
        shares = [each.whole if spot.whole else each.here for each in able]
        counts, works = (sum(sorted(each)[:number]) for each in zip(*shares, strict=True))
        return math.ceil(counts - ROUNDED), works

    def _lender(self, task: str, node: NodeTimeline) -> Lender:
        gang = self._giving.with_its_gang(task)
        if gang not in self._prices:
            self._prices[gang] = self._giving.price(gang)
        here = [name for name in gang if name in node.yielding]
        prices = self._giving.price(here), self._prices[gang]
        return Lender(task, len(node.gpus_of(task)), *((count / len(here), work / len(here)) for count, work in prices))

    def _open_on(self, node: NodeTimeline, sharing: Sharing) -> int:
        """How many GPUs are open there at the time if nobody gives way."""
        if (node.name, sharing) not in self._open:
            self._open[node.name, sharing] = node.open_at(self._moment, sharing)
        return self._open[node.name, sharing]

    def _on(self, spot: Spot) -> Option | None:
        """The cheapest place there."""
        if spot not in self._known:
            node, want = spot.node, self._kinds[spot.kind]
            for name in spot.going:
                node.ends(name, self._moment)
            fits = len(node.gpus) >= want[0].gpus and node.admits(want[0])
            self._known[spot] = self._fitting(spot, want) if fits else None
            for name in spot.going:
                node.ends(name, math.inf)
        return self._known[spot]

    def _fitting(self, spot: Spot, want: Want) -> Option | None:
        node = spot.node
        if node.fit(*want, self._moment) is not None:
            return Option((0, 0.0), node)
        able = [
            each
            for each in (self._giving.able(node, *want) if node.yielding else ())
            if each.task not in spot.going
            and each.task not in spot.staying
            and self._giving.gone(each) <= self._moment
            and not (self._now and each.yields and each.yields.since > self._giving.now)
        ]

        def price_of(names: Iterable[str]) -> Price:
            return self._giving.price(dict.fromkeys(name for name in names if spot.whole or name in node.yielding))

        def price(victims: Sequence[Allocation]) -> Price:
            return price_of(name for each in victims for name in self._giving.with_its_gang(each.task))

        coming = self._giving.fewest(node, *want, able, self._moment, price=price) if able else None
        return Option(price_of(coming.victims), node, coming.victims) if coming else None


def _order(option: Option) -> tuple[Price, int]:
    return option.order


def _assigned(options: Sequence[Sequence[Option]]) -> list[Option] | None:
    """One of the options of each member, all on different nodes, with the fewest victims in all."""
    names = sorted({each.node.name for several in options for each in several})
    if len(names) < len(options):
        return None
    by_name = [{each.node.name: each for each in several} for several in options]
    costs = [[its[name].cost if name in its else math.inf for name in names] for its in by_name]
    columns = cheapest(costs)
    return None if columns is None else [its[names[at]] for its, at in zip(by_name, columns, strict=True)]
