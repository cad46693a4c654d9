"""Gangs in a plan: all members start now, or all are promised one time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentless.model.tasks.task import Placement, Task
from agentless.rules.scheduling.preemption.gangs import GangPreemption
from agentless.rules.scheduling.preemption.victims import Preemption, filling, may_ask
from agentless.rules.scheduling.search import Searches
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.scheduling.timeline.node import NodeTimeline
from agentless.rules.scheduling.timeline.promise import Coming, Place, Promise, is_afterwards
from agentless.rules.scheduling.together import Spot, Together, Want
from agentless.rules.scheduling.wants import Wants
from agentless.rules.tasks.gangs.gangs import by_gang, gang_key


def units(queue: Sequence[Task]) -> list[tuple[Task, ...]]:
    """The queue, in which the members of a gang are one. A gang waits until all of its members are in the queue."""
    if not any(task.spec.gang for task in queue):
        return [(task,) for task in queue]
    gangs, found = by_gang(queue), list[tuple[Task, ...]]()
    for task in queue:
        if (key := gang_key(task)) is None:
            found.append((task,))
        elif (members := gangs.pop(key, None)) and task.spec.gang and len(members) == task.spec.gang.size:
            found.append(tuple(members))
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What becomes of a gang: its starts, or its promises, of which `given` are in the timelines."""

    starts: Mapping[str, Placement] = field(default_factory=dict)
    promises: Mapping[str, Promise | None] = field(default_factory=dict)
    given: int = 0
    about: bool = False


class GangPlan:
    """Plans gangs in one pass. `kept` and `weak` are the promises in the timelines, as in `plan`."""

    def __init__(
        self,
        searches: Searches,
        nodes: Sequence[NodeTimeline],
        giving: Preemption,
        kept: dict[str, Place],
        weak: dict[str, Place],
        gangs_and_others: Sequence[Sequence[Task]],
    ) -> None:
        self._searches = searches
        self._together = Together(searches, nodes)
        self._giving = giving
        self._asking = GangPreemption(giving, self._together, searches, nodes)
        self._kept = kept
        self._weak = weak
        self._hopeless = set[tuple[Want, ...]]()  # not even in place of all that wait
        self._mates = {
            task.id: tuple(mate.id for mate in unit) for unit in gangs_and_others if len(unit) > 1 for task in unit
        }

    def place(self, unit: Sequence[Task], needs: Wants, *, may_wait: bool, unsure: bool) -> Told:
        """The starts of the members, or their promises: all of them, or none."""
        wants = [needs.of(task) for task in unit]
        mine = [self._kept.pop(task.id) for task in unit if task.id in self._kept]
        self._take_back(mine)
        now = [(shape, filling(task, amounts)) for task, (shape, amounts) in zip(unit, wants, strict=True)]
        if found := self._together.now(now, anew=bool(mine)):
            return Told(self._started(unit, wants, found))
        if begun := self._instead(unit, wants):
            return Told(begun)
        comings = self._coming(unit, wants, mine) if may_wait else None
        return self._promised(unit, wants, comings, mine, unsure=unsure) if comings else _nothing(unit)

    def drop(self, task: str) -> None:
        """The place of a task, which was taken back, is not promised any more; neither are those of its gang."""
        for each in self._mates.get(task, (task,)):
            place = self._kept.pop(each, None) or self._weak.pop(each, None)
            if place and each != task:
                self._take_back([place])

    # ------------------------------------------------------------------ inside

    def _coming(self, unit: Sequence[Task], wants: Sequence[Want], mine: Sequence[Place]) -> list[Coming] | None:
        """The first places, by rank, with others giving way only if that is sooner."""
        found, comings = self._together.later(wants), None
        if found:
            comings = [Coming(found[0], node, gpus) for node, gpus in found[1]]
        if any(place.promise.victims for place in mine) and (not found or mine[0].load.begin < found[0]):
            comings = [place.coming for place in mine]
        return self._asking.sooner(unit, wants, comings[0].moment if comings else math.inf) or comings

    def _promised(
        self, unit: Sequence[Task], wants: Sequence[Want], comings: list[Coming], mine: list[Place], *, unsure: bool
    ) -> Told:
        """Put all members where they will start; `unsure`: one in front may come to want one of these places."""
        nodes = [coming.node for coming in comings]
        estimated, gives_way = any(node.unsure for node in nodes), any(coming.victims for coming in comings)
        if mine and mine[0].promise.firm and estimated and not gives_way:
            # A certain time is worth more than one that rests on what was learned.
            comings, promises = [place.coming for place in mine], [place.promise for place in mine]
            about = False
        else:
            comings, certain = self._giving.relying(unit, comings, wants)
            about = comings[0].moment < FAR and (unsure or not certain or estimated)
            promises = [coming.promise(about=about) for coming in comings]
        for coming in comings:
            self._giving.ask(coming.node, coming.victims, coming.moment)
        self._giving.note(unit, comings)
        places, lends = dict[str, Place](), may_ask(unit)
        for task, (shape, amounts), coming, promise in zip(unit, wants, comings, promises, strict=True):
            node, gpus = coming.node, coming.gpus
            load = node.put(shape, amounts, gpus, coming.moment, firm=promise.firm, lends=lends)
            places[task.id] = Place(node, shape, amounts, gpus, load, promise)
            self._searches.changed(node)
        if any(coming.node.reservations for coming in comings):
            self._weak.update(places)
            return Told({}, {task.id: None for task in unit}, len(unit), about)
        return Told({}, {task: place.promise for task, place in places.items()}, len(unit), about)

    def _started(self, unit: Sequence[Task], wants: Sequence[Want], found: Sequence[Spot]) -> dict[str, Placement]:
        begun = {}
        for task, (shape, amounts), (node, gpus) in zip(unit, wants, found, strict=True):
            begun[task.id], _ = node.start(shape, amounts, gpus)
            self._searches.changed(node)
        return begun

    def _take_back(self, places: Sequence[Place]) -> None:
        for place in places:
            self._giving.leave(place)
            self._searches.changed(place.node)

    def _weaker(self, owner: str) -> Mapping[str, Place]:
        """The promises that give way to a gang of this owner; of another gang all, or none."""
        if not owner:
            return dict(self._kept)
        after = {task for task, place in self._weak.items() if is_afterwards(place, owner)}
        gives = {mate for task in after for mate in self._mates.get(task, (task,))}
        return self._kept | {task: place for task, place in self._weak.items() if task in gives}

    def _instead(self, unit: Sequence[Task], wants: Sequence[Want]) -> dict[str, Placement] | None:
        """Start where only promises to tasks behind this gang are in the way; those that are give way."""
        owner, key = wants[0][0].owner, tuple(wants)
        weaker = self._weaker(owner)
        if not weaker or (key in self._hopeless and not owner) or not self._together.may_be_open(wants):
            return None
        self._take_back(list(weaker.values()))
        found = self._together.now(wants, anew=True)
        begun = self._started(unit, wants, found) if found else None
        for task in weaker:
            group = [mate for mate in self._mates.get(task, (task,)) if mate in weaker]
            if task == group[0]:
                self._again({mate: weaker[mate] for mate in group}, surely=begun is None)
        if begun:
            self._searches.forget()  # whoever gave way may have left more capacity than was taken
        else:
            self._hopeless.add(key)
        return begun

    def _again(self, group: Mapping[str, Place], *, surely: bool) -> None:
        """Put promises back where they were, unless one of them does not fit there any more."""
        for place in group.values():
            self._giving.ask_all(place)
        fit = surely or all(
            place.node.fit(place.shape, place.amounts, place.load.begin, place.gpus) is not None
            for place in group.values()
        )
        for task, place in group.items():
            there = self._kept if task in self._kept else self._weak
            self._giving.spare(place)
            if fit:
                there[task] = self._giving.enter(place)
            else:
                del there[task]
            self._searches.changed(place.node)


def _nothing(unit: Sequence[Task]) -> Told:
    """No promises."""
    return Told(promises={task.id: None for task in unit})
