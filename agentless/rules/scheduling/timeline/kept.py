"""The promises of the previous pass, entered again. Preemptible tasks that are there by now give way."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from agentless.model.tasks.task import Blocked, Task
from agentless.rules.scheduling.batches import Turns
from agentless.rules.scheduling.preemption.victims import Preemption, may_ask
from agentless.rules.scheduling.stay import UNKNOWN, Stay
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.scheduling.timeline.node import NodeTimeline
from agentless.rules.scheduling.timeline.promise import Coming, Place, Promise
from agentless.rules.scheduling.together import Want
from agentless.rules.scheduling.wants import Wants

LATE = 5.0
"""The most seconds by which a promise is delayed if a task is over its time and its end is not seen yet."""


class Kept:
    """Enters the promises that were given `before`."""

    def __init__(
        self,
        nodes: Mapping[str, NodeTimeline],
        before: Mapping[str, Promise | None],
        now: float,
        wants: Wants,
        giving: Preemption,
    ) -> None:
        self._nodes = nodes
        self._before = before
        self._now = now
        self._wants = wants
        self._giving = giving

    def places(self, gangs_and_others: Sequence[Sequence[Task]], turns: Turns) -> dict[str, Place]:
        """The earlier promises, entered again, up to the first task that is new or whose promise cannot be kept.

        The tasks behind that one must not take a place that it could have.
        """
        kept: dict[str, Place] = {}
        for unit in gangs_and_others:
            ahead, is_blocked = turns.before(unit[0]), isinstance(unit[0].status, Blocked)
            if is_blocked and (ahead is UNKNOWN or len(unit) > 1):
                continue
            if any(task.id not in self._before for task in unit):
                break
            if any(self._before[task.id] is None for task in unit):
                continue
            places = self._of(unit, ahead)
            if places is None and is_blocked:
                continue
            if places is None:
                break
            kept |= places
            for task in unit:
                place = places[task.id]
                turns.add(task, Stay(place.load.end, place.node, place.gpus))
        return kept

    # ------------------------------------------------------------------ inside

    def _of(self, unit: Sequence[Task], ahead: Stay | None) -> dict[str, Place] | None:
        """The earlier promise of a task, or those of all members of a gang at one time; None if not kept."""
        promises = [promise for task in unit if (promise := self._before[task.id])]
        start = promises[0].start
        named = {each for promise in promises for each in promise.victims} if self._giving.may_ask(unit) else None
        late = LATE if start is not None else math.inf  # of several without a known time, each waits for the one before
        begin = FAR if start is None else max(start, self._now)
        moment, last = (max(begin, ahead.end) if ahead else begin), -math.inf
        spots = list[tuple[Want, Coming]]()
        while moment > last:
            last, spots = moment, []
            for task, promise in zip(unit, promises, strict=True):
                want = self._wants.of(task)
                coming = self._again(want, promise, last, late, named)
                if coming is None and len(unit) == 1 and start is not None:
                    want, coming = self._ending_late(want, promise, last)
                if coming is None or coming.moment > begin + late:
                    return None
                moment = max(moment, coming.moment)
                spots.append((want, coming))
        wants = [want for want, _ in spots]
        comings, certain = self._giving.relying(unit, [replace(each, moment=moment) for _, each in spots], wants)
        about, at = start is not None and not certain, None if start is None else moment
        kept = {}
        for task, promise, want, coming in zip(unit, promises, wants, comings, strict=True):
            shifted = replace(promise, start=at, about=promise.about or about, victims=coming.victims)
            self._giving.ask(coming.node, coming.victims, moment)
            load = coming.node.put(*want, coming.gpus, moment, firm=shifted.firm, lends=may_ask(unit))
            kept[task.id] = Place(coming.node, *want, coming.gpus, load, shifted)
        return kept

    def _ending_late(self, want: Want, promise: Promise, since: float) -> tuple[Want, Coming | None]:
        """A promised place, a little late, of one that ends as much later than another one was promised the place.

        That one is late, too, then. A reservation is not.
        """
        shape, amounts = want
        shorter = shape, amounts._replace(length=max(0.0, amounts.length - LATE))
        node = self._nodes.get(promise.node)
        return shorter, None if node is None or node.reservations else self._again(shorter, promise, since, LATE, None)

    def _again(
        self, want: Want, promise: Promise, since: float, most: float, victims: Collection[str] | None
    ) -> Coming | None:
        """A promised place from its time on; preemptible tasks that are there give way, as soon as they have to.

        Best these `victims` of the promise. None: nobody may be asked.
        """
        node = self._nodes.get(promise.node)
        if node is None:
            return None
        gpus = node.these(promise.gpu_uuids)
        found = node.earliest(*want, since, gpus)
        if found and found[0] <= since:
            return Coming(found[0], node, found[1])
        lent = None if victims is None else self._giving.keeping(node, want, since, LATE, gpus, victims)
        if found and found[0] <= (lent.moment if lent else since + most):
            return Coming(found[0], node, found[1])
        return lent
