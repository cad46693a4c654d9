"""Who gives way to whom: preemptible tasks, for a task that could not start otherwise.

Never more tasks than needed: the smallest set on one node, of several the one whose work so far is the least. Tasks
that may be asked now come before those whose `--min-run` is not over.

A victim may go for several tasks, at the first of their times. Each of their promises names it, so that none of them is
lost if another task does not need it any more.

A task asks once. Its place is kept for it from then on (`model/tasks/task.KeptPlace`), so that it gets what others gave
up, and asks nobody else. A gang asks for all of its members, see `gang_preemption`, and gives way with all of them. A
task asks nobody before it is pending.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, combinations

from agentless.model.nodes.cluster import Allocation
from agentless.model.tasks.task import KeptPlace, Pending, Placement, Task
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.search import Searches
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import GpuTimeline
from agentless.rules.scheduling.timeline.node import SOON, NodeTimeline
from agentless.rules.scheduling.timeline.promise import Coming, Place
from agentless.rules.scheduling.together import Want
from agentless.rules.tasks.preemptible import LEEWAY
from agentless.rules.usage.fair_share import weight

MOST = 20
"""The most tasks for which others give way in one pass. The next passes look for the rest."""
KINDS = 50
"""The most kinds of tasks for which one pass finds out that nobody can give way."""
SETS = 2000
"""With more possible sets of victims of one size than this, a set is grown and pruned instead of comparing all."""
TRIED = 200
"""The most sets on one node that are tried in full."""
LATE_NODES = 10
"""The most nodes on which a place at a later time is looked for."""
A_LOOK = 2.0
"""Seconds until the next pass: who has to be asked before that is asked now, or the promise would be late."""
FILLER = 60.0
"""The least seconds for which a preemptible task is put on GPUs that are promised to others."""


def may_ask(unit: Iterable[Task]) -> bool:
    """Whether others may give way for a task, or for a gang."""
    return not any(task.spec.terms.preemptible or task.victims or not isinstance(task.status, Pending) for task in unit)


def filling(task: Task, amounts: Amounts) -> Amounts:
    """The amounts with which a task may be put before promises to others: in which time it can give way."""
    terms = task.spec.terms
    if not terms.preemptible:
        return amounts
    least = max(terms.min_run or 0.0, FILLER) + task.spec.stop_grace + LEEWAY
    return amounts._replace(gives_way=least)


Held = tuple[Coming, Load]
"""A place that is kept, in the timeline."""

Begun = tuple[Placement, Load]
"""A start in one."""

_Tried = Callable[[Sequence[Allocation]], Coming | None]
"""Tries a set of victims."""

_Priced = Callable[[Sequence[Allocation]], tuple[int, float]]
"""How many give way, and the work that they have done."""


class Preemption:
    """Finds who gives way in one planning pass."""

    def __init__(self, nodes: Mapping[str, NodeTimeline], now: float, searches: Searches) -> None:
        self.now = now
        self._nodes = nodes
        self._searches = searches
        self._homes = {task: node for node in nodes.values() if not node.closed for task in node.yielding}
        self.lenders = list(dict.fromkeys(self._homes.values()))
        self._asked: dict[str, list[float]] = {}  # the times of all places that rely on the end of a task
        self._kept_for: dict[str, float] = {}  # the first time of a place that is kept with this victim
        self._held: list[tuple[NodeTimeline, float, Load]] = []  # with the time at which its task was to be over
        self._waiting: list[tuple[Sequence[Task], Sequence[Coming]]] = []
        self._failed: dict[Shape, list[Amounts]] = {}
        self._own_works: dict[str, float] = {}
        self._works: dict[str, float] = {}
        self._found = 0

    # ------------------------------------------------------------------ kept places

    def hold(self, unit: Sequence[Task], wants: Sequence[Want], since: float) -> list[Held] | None:
        """Put a task, or a gang, into the places kept for it, for when the victims have gone. Not before `since`.

        Those whose places come first are to be put first: where one is late, those that follow it are later, too.
        None if nobody can start on one of these nodes; then all may start on others.
        """
        places = [place for task in unit if (place := task.kept_place)]
        nodes = [node for place in places if (node := self._nodes.get(place.node)) and not node.closed]
        if len(nodes) < len(unit):
            return None
        due = max(place.until for place in places)
        late = (load.end for node, over, load in self._held if node in nodes and over < due + SOON)
        moment = max(since, self.now + SOON, due, *late)
        found = list[Held]()
        for node, place, want in zip(nodes, places, wants, strict=True):
            gpus, left = node.these(place.gpu_uuids), tuple(each for each in place.victims if node.load_of(each))
            coming = Coming(moment, node, gpus, left)
            self.ask(node, left, moment)
            self._keep_for(coming)
            load = node.put(*want, gpus, moment, firm=True)
            self._held.append((node, due + load.end - load.begin, load))
            found.append((coming, load))
        return found

    def begin(self, unit: Sequence[Task], wants: Sequence[Want], held: Sequence[Held]) -> list[Begun] | None:
        """Start them in these places, if all of their victims have gone, and nobody else has a place there before."""
        places = [place for task in unit if (place := task.kept_place)]
        if any(coming.victims for coming, _ in held) or not all(
            len(coming.gpus) == len(place.gpu_uuids) for (coming, _), place in zip(held, places, strict=True)
        ):
            return None
        for coming, load in held:
            coming.node.take_back(coming.gpus, load)
        spots = [self.now_there(coming, want) for (coming, _), want in zip(held, wants, strict=True)]
        begun = list[Begun]()
        for (coming, load), want, gpus in zip(held, wants, spots, strict=True):
            if any(each is None for each in spots):
                coming.node.put(*want, coming.gpus, load.begin, firm=True)
            else:
                begun.append(coming.node.start(*want, gpus or []))
        return begun or None

    # ------------------------------------------------------------------ victims

    def ask(self, node: NodeTimeline, victims: Iterable[str], moment: float) -> None:
        """Let tasks on a node, with all of their gangs, end by then: a place from then on relies on it."""
        for name, home in self._with_their_gangs(node, victims):
            self._asked.setdefault(name, []).append(moment)
            self._end(home, name)

    def spare(self, place: Place) -> None:
        """Let those stay after all who were asked for a promise, or until others need their places."""
        for name, home in self._with_their_gangs(place.node, place.promise.victims):
            self._asked[name].remove(place.load.begin)
            self._end(home, name)

    def ask_all(self, place: Place) -> None:
        """Let those end who give way for a promise."""
        self.ask(place.node, place.promise.victims, place.load.begin)

    def leave(self, place: Place) -> None:
        """Take a task out of its promised place."""
        place.node.take_back(place.gpus, place.load)
        self.spare(place)

    def enter(self, place: Place) -> Place:
        """Put it there again."""
        self.ask_all(place)
        begin, firm, lends = place.load.begin, place.load.firm, place.load.lends
        load = place.node.put(place.shape, place.amounts, place.gpus, begin, firm=firm, lends=lends)
        return replace(place, load=load)

    def sooner(self, task: Task, shape: Shape, amounts: Amounts, than: float) -> Coming | None:
        """A place before this time where others give way, or None."""
        if not self.may_ask((task,)) or self._found >= MOST or len(self._failed) >= KINDS:
            return None
        if any(failed.within(amounts) for failed in self._failed.get(shape, ())):
            return None
        found = self._at_once(shape, amounts) or self._later(shape, amounts)
        if found is None:
            self._failed.setdefault(shape, []).append(amounts)
        if found is None or found.moment >= than:
            return None
        self._found += 1
        return found

    def may_ask(self, unit: Iterable[Task]) -> bool:
        """Whether there is anybody to give way for a task, or for a gang."""
        return bool(self.lenders) and may_ask(unit)

    def keeping(
        self,
        node: NodeTimeline,
        want: Want,
        since: float,
        most: float,
        gpus: Sequence[GpuTimeline],
        named: Collection[str],
    ) -> Coming | None:
        """These promised GPUs, at most so many seconds late, if those who are there now give way by then.

        Best those `named` by the promise, or those who go anyway.
        """
        able = [each for each in self.able(node, *want, by=since) if self.gone(each) <= since + most]
        for each in able:
            node.ends(each.task, self.gone(each))
        first = node.earliest(*want, since, gpus) if able else None
        self._restore(node, able)
        if first is None or first[0] > since + most:
            return None
        able = [each for each in able if self.gone(each) <= first[0]]
        going = [each for each in able if each.task in named or self._asked.get(each.task)]
        for among in (going, able):
            if among and (found := self.fewest(node, *want, among, first[0], gpus)):
                return found
        return None

    def relying(
        self, unit: Sequence[Task], comings: Sequence[Coming], wants: Sequence[Want]
    ) -> tuple[list[Coming], bool]:
        """The places with all whose end they rely on, also if others have asked them, and whether they are certain.

        They are not if this task, or gang, may not ask them itself, in case the others do not need them any more.
        """
        own = {victim for coming in comings for victim in coming.victims}
        others = [self._relied_on(coming, want, own) for coming, want in zip(comings, wants, strict=True)]
        if not any(others):
            return list(comings), True
        if not may_ask(unit):
            return list(comings), False
        return [
            replace(coming, victims=tuple(dict.fromkeys((*coming.victims, *more))))
            for coming, more in zip(comings, others, strict=True)
        ], True

    def note(self, unit: Sequence[Task], comings: Sequence[Coming]) -> None:
        """Remember that a task, or a gang, waits for victims."""
        self._waiting.append((unit, comings))

    def places(self) -> dict[str, KeptPlace]:
        """The places of the tasks whose victims have to be asked now; of a gang, of all members."""
        found = dict[str, KeptPlace]()
        for unit, comings in self._waiting:
            if any(self._is_due(victim, coming.moment) for coming in comings for victim in coming.victims):
                for task, coming in zip(unit, comings, strict=True):
                    uuids = tuple(gpu.uuid for gpu in coming.gpus)
                    found[task.id] = KeptPlace(coming.node.name, uuids, coming.victims, coming.moment)
                    self._keep_for(coming)
        return found

    def unasked(self, node: NodeTimeline, by: float = math.inf) -> list[Allocation]:
        """Those on a node that may give way, with all of their gangs, and are not asked to be gone `by` then."""
        return [
            each
            for each in node.yielding.values()
            if each.task in self._whole and (not self._asked.get(each.task) or self._asked_by(each.task) > by)
        ]

    def with_its_gang(self, victim: str) -> tuple[str, ...]:
        """Those who give way with one, itself included."""
        return _mates(self._homes[victim].yielding[victim])

    def able(self, node: NodeTimeline, shape: Shape, amounts: Amounts, by: float = math.inf) -> list[Allocation]:
        """The `unasked` that hold something that the task needs; the least work first."""
        if not node.admits(shape):
            return []
        any_will_do = bool(shape.exclusive or amounts.cores or amounts.memory)
        suited = set() if any_will_do else {gpu.uuid for gpu in node.suited(shape, later=True)}
        able = [
            each
            for each in self.unasked(node, by)
            if any_will_do or not suited.isdisjoint(gpu.uuid for gpu in node.gpus_of(each.task))
        ]
        return sorted(able, key=lambda each: (self._work(each), each.task))

    def fewest(
        self,
        node: NodeTimeline,
        shape: Shape,
        amounts: Amounts,
        able: Sequence[Allocation],
        moment: float | None = None,
        among: Sequence[GpuTimeline] | None = None,
        price: _Priced | None = None,
    ) -> Coming | None:
        """The smallest set of these with which the task fits, at that time or as soon as they have gone.

        By their `price`, in which gangs count in full if none is given.
        """
        price = price or self._price

        def tried(victims: Sequence[Allocation]) -> Coming | None:
            asked = [self._asked_by(each) for each in node.yielding if self._asked.get(each)]
            at = moment if moment is not None else max([*asked, *map(self.gone, victims)])
            for each in victims:
                node.ends(each.task, self.gone(each))
            gpus = node.fit(shape, amounts, at, among)
            self._restore(node, victims)
            names = dict.fromkeys(name for each in victims for name in _mates(each))
            return None if gpus is None else Coming(at, node, gpus, tuple(names))

        if (with_all := tried(able)) is None:
            return None
        least = self._least(node, shape, amounts, able, moment)
        best: tuple[tuple[int, float], Coming] | None = None
        trials = 0
        for size in range(least or 1, len(able) + 1):
            if best and size > best[0][0]:
                break
            if size < len(able) and math.comb(len(able), size) > SETS:
                return best[1] if best else self._pruned(able, tried)
            for victims in sorted(combinations(able, size), key=price):
                if best and price(victims) >= best[0]:
                    break
                if found := tried(victims) if size < len(able) else with_all:
                    best = price(victims), found
                    break
                if size < len(able) and (trials := trials + 1) > TRIED:
                    return best[1] if best else self._pruned(able, tried)
        return best and best[1]

    def gone(self, each: Allocation) -> float:
        """When it has certainly ended if it is asked as soon as it may be."""
        return math.inf if each.yields is None else max(self.now, each.yields.since) + each.yields.within

    def price(self, victims: Iterable[str]) -> tuple[int, float]:
        """How many give way, and the work that they have done."""
        works = [self._own_work(each) for each in victims]
        return len(works), sum(works)

    def now_there(self, coming: Coming, want: Want) -> list[GpuTimeline] | None:
        """The GPUs of a place if a task may have them now; None if not."""
        shape, amounts = want
        found = coming.node.fit(shape, amounts, self.now, coming.gpus)
        return found if found is not None and all(gpu.free >= shape.gpu_memory for gpu in found) else None

    # ------------------------------------------------------------------ inside

    @cached_property
    def _whole(self) -> set[str]:
        """Those of whose gangs all members are on nodes where they can give way."""
        known = self._homes.keys()
        return {task for task, node in self._homes.items() if known >= {*_mates(node.yielding[task])}}

    def _at_once(self, shape: Shape, amounts: Amounts) -> Coming | None:
        """The place for which the fewest give way at once, and have done the least work."""
        nodes = []
        for node in self.lenders:
            able = [each for each in self.able(node, shape, amounts) if each.yields and each.yields.since <= self.now]
            if able and (number := self._least(node, shape, amounts, able)) is not None:
                least = number, sum(self._work(each) for each in able[:number])
                nodes.append((least, node.order, node, able))
        best: tuple[tuple[int, float], Coming] | None = None
        for least, _, node, able in sorted(nodes, key=lambda each: each[:2]):
            if best and least > best[0]:
                break
            found = self.fewest(node, shape, amounts, able)
            if found and (best is None or self.price(found.victims) < best[0]):
                best = self.price(found.victims), found
        return best and best[1]

    def _later(self, shape: Shape, amounts: Amounts) -> Coming | None:
        """The first place that will be there when those have gone who may only be asked later."""
        nodes = [
            (min(map(self.gone, able)), node.order, node, able)
            for node in self.lenders
            if (able := self.able(node, shape, amounts))
        ]
        best: Coming | None = None
        for soonest, _, node, able in sorted(nodes, key=lambda each: each[:2])[:LATE_NODES]:
            if best and best.moment <= soonest:
                break
            for each in able:
                node.ends(each.task, self.gone(each))
            found = node.earliest(shape, amounts, self.now)
            self._restore(node, able)
            if found and (best is None or found[0] < best.moment):
                gone = [each for each in able if self.gone(each) <= found[0]]
                best = (gone and self.fewest(node, shape, amounts, gone, found[0])) or best
        return best

    def _least(
        self,
        node: NodeTimeline,
        shape: Shape,
        amounts: Amounts,
        able: Sequence[Allocation],
        moment: float | None = None,
    ) -> int | None:
        """At least so many have to give way now, or at a moment. None if all of them are too few."""
        lacks = shape.gpus - node.open_at(self.now if moment is None else moment, shape.sharing.rough)
        numbers = [1, fewest_with(lacks, [len(node.gpus_of(each.task)) for each in able])]
        if moment is None and amounts.cores:
            numbers.append(fewest_with(amounts.cores - node.free_cores - 1e-9, [each.cores for each in able]))
        if moment is None and amounts.memory:
            numbers.append(fewest_with(amounts.memory - node.free_memory, [each.memory for each in able]))
        if None in numbers:
            return None
        if shape.exclusive and moment is None:
            number = len(node.node.allocations)
            return number if number <= len(able) else None
        return max(filter(None, numbers))

    def _pruned(self, able: Sequence[Allocation], tried: _Tried) -> Coming | None:
        """A set without anybody who need not give way: grown from those who hold most, then pruned."""
        left: list[Allocation] = []
        for each in sorted(able, key=lambda each: (-len(each.gpu_uuids), -each.cores, self._work(each))):
            left.append(each)
            if tried(left):
                break
        for each in sorted(left, key=self._work, reverse=True):
            fewer = [other for other in left if other is not each]
            if fewer and tried(fewer):
                left = fewer
        return tried(left)

    def _restore(self, node: NodeTimeline, victims: Iterable[Allocation]) -> None:
        for each in victims:
            node.ends(each.task, self._asked_by(each.task))

    def _relied_on(self, coming: Coming, want: Want, own: Collection[str]) -> list[str]:
        """Those who are asked to go for others, without whose end this is no place, even if its `own` victims go."""
        node, asks, others = coming.node, list[Allocation](), list[Allocation]()
        for each in node.yielding.values():
            if each.task in own:
                asks.append(each)
            elif self._asked_by(each.task) <= coming.moment:
                others.append(each)
        if not others:
            return []
        for each in asks:
            node.ends(each.task, coming.moment)
        needed = list[Allocation]()
        for each in others:
            node.ends(each.task, math.inf)
            if node.fit(*want, coming.moment, coming.gpus) is None:
                node.ends(each.task, self._asked_by(each.task))
                needed.append(each)
        self._restore(node, (*asks, *others))
        return [name for each in needed for name in _mates(each)]

    def _asked_by(self, task: str) -> float:
        """By when it has to be gone."""
        return min(self._asked.get(task, ()), default=math.inf)

    def _is_due(self, victim: str, moment: float) -> bool:
        """Whether a victim has to be asked now for a place at this time, and not for another one before it."""
        home = self._homes.get(victim)
        terms = home.yielding[victim].yields if home else None
        if terms is None or self._asked_by(victim) < moment or self._kept_for.get(victim, math.inf) <= moment:
            return False
        return moment - terms.within - A_LOOK <= self.now

    def _keep_for(self, coming: Coming) -> None:
        for victim in coming.victims:
            self._kept_for[victim] = min(coming.moment, self._kept_for.get(victim, math.inf))

    def _work(self, each: Allocation) -> float:
        """The GPU-seconds that it has used, with all of its gang."""
        if (work := self._works.get(each.task)) is None:
            work = sum([self._own_work(name) for name in _mates(each) if name in self._homes])
            self._works[each.task] = work
        return work

    def _own_work(self, name: str) -> float:
        if (work := self._own_works.get(name)) is None:
            each = self._homes[name].yielding[name]
            began = each.yields.began if each.yields else self.now
            work = self._own_works[name] = weight(len(each.gpu_uuids)) * max(0.0, self.now - began)
        return work

    def _price(self, victims: Sequence[Allocation]) -> tuple[int, float]:
        return sum(len(_mates(each)) for each in victims), sum(map(self._work, victims))

    def _with_their_gangs(self, node: NodeTimeline, victims: Iterable[str]) -> list[tuple[str, NodeTimeline]]:
        """Tasks that give way and all of their gangs, with their nodes. One that goes already is only on `node`."""
        found = dict[str, NodeTimeline]()
        for victim in victims:
            if (home := self._homes.get(victim)) is None:
                found[victim] = node
            else:
                found |= {name: self._homes[name] for name in _mates(home.yielding[victim]) if name in self._homes}
        return list(found.items())

    def _end(self, node: NodeTimeline, task: str) -> None:
        node.ends(task, self._asked_by(task))
        self._searches.changed(node)


def fewest_with(wanted: float, held: Sequence[float]) -> int | None:
    """How many it takes at least to have so much; None if all are too few."""
    sums = [0.0, *accumulate(sorted(held, reverse=True))]
    return next((count for count, amount in enumerate(sums) if amount >= wanted), None)


def _mates(each: Allocation) -> tuple[str, ...]:
    """The tasks that give way with this one, itself included."""
    return (each.yields and each.yields.mates) or (each.task,)
