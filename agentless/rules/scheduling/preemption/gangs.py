"""Who gives way to a gang: the fewest over all of its nodes, and nobody unless all of its members fit then."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentless.model.tasks.task import Task
from agentless.rules.scheduling.preemption.gang_victims import GangVictims, Price
from agentless.rules.scheduling.preemption.victims import Preemption
from agentless.rules.scheduling.search import Searches
from agentless.rules.scheduling.timeline.node import NodeTimeline
from agentless.rules.scheduling.timeline.promise import Coming
from agentless.rules.scheduling.together import Together, Want

MOST = 5
"""The most gangs for which others give way in one pass, and the most kinds that ask in vain. The next ones look on."""
MOMENTS = 3
"""The most times at which victims of different grace times may have gone that are compared."""


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
        best: tuple[Price, list[Coming]] | None = None
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
        best = GangVictims(self._giving, self._nodes, wants, moment, now=now).fewest()
        if best is None or not best.victims:
            return None
        comings = list[Coming]()
        for option, want in zip(best.chosen, wants, strict=True):
            node, here = option.node, [name for name in best.victims if name in option.node.yielding]
            for name in here:
                node.ends(name, moment)
            gpus = node.fit(*want, moment)
            for name in here:
                node.ends(name, math.inf)
            if gpus is None:
                return None
            gangs = dict.fromkeys(mate for name in here for mate in self._giving.with_its_gang(name))
            comings.append(Coming(moment, node, gpus, tuple(gangs)))
        return comings


def _victims(comings: Sequence[Coming]) -> list[str]:
    return list(dict.fromkeys(victim for coming in comings for victim in coming.victims))
