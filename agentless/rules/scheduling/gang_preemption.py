"""Who gives way to a gang: the fewest over all of its nodes, and nobody unless all of its members fit then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.assignment import cheapest
from agentless.rules.scheduling.node_timeline import NodeTimeline
from agentless.rules.scheduling.preemption import Preemption
from agentless.rules.scheduling.promise import Coming
from agentless.rules.scheduling.search import Searches
from agentless.rules.scheduling.together import Together, Want, fabric

MOST = 5
"""The most gangs for which others give way in one pass, and the most kinds that ask in vain. The next ones look on."""
MOMENTS = 3
"""The most times at which victims of different grace times may have gone that are compared."""
A_VICTIM = 1e12
"""What a victim counts in GPU-seconds: more than any work."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A place for one member, and what its victims cost."""

    price: tuple[int, float]
    coming: Coming

    @property
    def cost(self) -> float:
        return self.price[0] * A_VICTIM + self.price[1]

    @property
    def order(self) -> tuple[tuple[int, float], int]:
        return self.price, self.coming.node.order


class GangPreemption:
    """Finds who gives way to gangs in one planning pass."""

    def __init__(
        self, giving: Preemption, together: Together, searches: Searches, nodes: Sequence[NodeTimeline]
    ) -> None:
        self._giving = giving
        self._together = together
        self._searches = searches
        self._nodes = [node for node in nodes if not node.closed]
        self._failed = set[tuple[Want, ...]]()
        self._found = 0

    def sooner(self, unit: Sequence[Task], wants: Sequence[Want], than: float) -> list[Coming] | None:
        """Places for all members at one time before this one, where others give way, by rank; or None."""
        if not self._giving.may_ask(unit) or self._found >= MOST or len(self._failed) >= MOST:
            return None
        if (key := tuple(wants)) in self._failed:
            return None
        found = self._at_once(wants, than) or self._later(wants, than)
        if found is None:
            self._failed.add(key)
            return None
        self._found += 1
        return found

    # ------------------------------------------------------------------ inside

    def _at_once(self, wants: Sequence[Want], than: float) -> list[Coming] | None:
        """With those who may be asked now."""
        gone = sorted(
            {
                self._giving.gone(each)
                for node in self._giving.lenders
                for each in node.yielding.values()
                if each.yields and each.yields.since <= self._giving.now
            }
        )
        moments = [moment for moment in gone if moment < than]
        best: tuple[tuple[int, float], list[Coming]] | None = None
        for moment in dict.fromkeys((*moments[: MOMENTS - 1], *moments[-1:])):
            found = self._at(wants, moment, now=True)
            if found and (price := self._giving.price(_victims(found))) and (best is None or price < best[0]):
                best = price, found
        return best and best[1]

    def _later(self, wants: Sequence[Want], than: float) -> list[Coming] | None:
        """At the first time at which there is room if all give way as soon as they may."""
        able = [(node, each) for node in self._giving.lenders for each in self._giving.unasked(node)]
        for node, each in able:
            node.ends(each.task, self._giving.gone(each))
            self._searches.changed(node)
        found = self._together.later(wants)
        for node, each in able:
            node.ends(each.task, math.inf)
            self._searches.changed(node)
        return self._at(wants, found[0], now=False) if found and found[0] < than else None

    def _at(self, wants: Sequence[Want], moment: float, *, now: bool) -> list[Coming] | None:
        """The places at this time for which the fewest give way; None if nobody does. `now`: who may be asked now."""
        kinds = list(dict.fromkeys(wants))
        options = [self._options(want, moment, len(wants), now=now) for want in kinds]
        if len(kinds) == 1:
            # Neighbours in the fabric are neighbours by rank.
            near = sorted(options[0], key=lambda each: (fabric(each.coming.node), each.coming.node.order))
            chosen = near if len(near) == len(wants) else None
        else:
            chosen = _assigned([options[kinds.index(want)] for want in wants])
        if chosen is None or not any(each.coming.victims for each in chosen):
            return None
        return self._needed(wants, [each.coming for each in chosen], moment)

    def _options(self, want: Want, moment: float, most: int, *, now: bool) -> list[_Option]:
        """The cheapest places for a member at this time."""
        shape, amounts = want
        found = list[_Option]()
        for node in self._nodes:
            if len(node.gpus) < shape.gpus or not node.admits(shape):
                continue
            if (gpus := node.fit(shape, amounts, moment)) is not None:
                found.append(_Option((0, 0.0), Coming(moment, node, gpus)))
                continue
            able = [
                each
                for each in (self._giving.able(node, shape, amounts) if node.yielding else ())
                if self._giving.gone(each) <= moment
                and not (now and each.yields and each.yields.since > self._giving.now)
            ]
            if able and (coming := self._giving.fewest(node, shape, amounts, able, moment)):
                found.append(_Option(self._giving.price(coming.victims), coming))
        return sorted(found, key=lambda each: each.order)[:most]

    def _needed(self, wants: Sequence[Want], comings: list[Coming], moment: float) -> list[Coming]:
        """The places without victims of which the room is not needed: a gang that gives way leaves several nodes."""
        for victim in sorted(set(_victims(comings)), key=lambda each: self._giving.price((each,)), reverse=True):
            going = [each for each in _victims(comings) if each not in self._giving.with_its_gang(victim)]
            if len(going) == len(_victims(comings)):
                continue  # it has been left out with its gang
            fewer = self._with(wants, comings, going, moment)
            comings = fewer or comings
        return comings

    def _with(
        self, wants: Sequence[Want], comings: Sequence[Coming], going: Sequence[str], moment: float
    ) -> list[Coming] | None:
        """The same places with only these victims; None if that is not enough."""
        for coming in comings:
            for victim in going:
                coming.node.ends(victim, moment)
        places = [coming.node.fit(*want, moment) for want, coming in zip(wants, comings, strict=True)]
        for coming in comings:
            for victim in going:
                coming.node.ends(victim, math.inf)
        return (
            [
                replace(coming, gpus=gpus, victims=tuple(each for each in coming.victims if each in going))
                for coming, gpus in zip(comings, places, strict=True)
                if gpus is not None
            ]
            if all(gpus is not None for gpus in places)
            else None
        )


def _victims(comings: Sequence[Coming]) -> list[str]:
    return list(dict.fromkeys(victim for coming in comings for victim in coming.victims))


def _assigned(options: Sequence[Sequence[_Option]]) -> list[_Option] | None:
    """One of the options of each member, all on different nodes, with the fewest victims in all."""
    names = sorted({each.coming.node.name for several in options for each in several})
    if len(names) < len(options):
        return None
    by_name = [{each.coming.node.name: each for each in several} for several in options]
    costs = [[its[name].cost if name in its else math.inf for name in names] for its in by_name]
    columns = cheapest(costs)
    return None if columns is None else [its[names[at]] for its, at in zip(by_name, columns, strict=True)]
