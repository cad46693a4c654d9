"""Who gives way to whom: preemptible tasks, for a task that could not start otherwise.

Never more tasks than needed: the smallest set on one node, of several the one whose work so far is the least. Tasks
that may be asked now come before those whose `--min-run` is not over.

A task asks once. Its place is kept for it from then on (`model/tasks/task.KeptPlace`), so that it gets what others gave
up, and asks nobody else. A gang asks nobody, nor does a task before it is pending.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, combinations

from agentless.model.nodes.cluster import Allocation
from agentless.model.tasks.task import KeptPlace, Pending, Placement, Task
from agentless.rules.scheduling.gpu_timeline import GpuTimeline
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.node_timeline import SOON, NodeTimeline
from agentless.rules.scheduling.promise import Coming, Place
from agentless.rules.scheduling.shape import Amounts, Shape
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
FILLER = 60.0
"""The least seconds for which a preemptible task is put on GPUs that are promised to others."""


def asks_nobody(task: Task) -> bool:
    """Whether nobody gives way for a task, although it is not preemptible itself."""
    return not task.spec.terms.preemptible and (
        bool(task.victims) or task.spec.gang is not None or not isinstance(task.status, Pending)
    )


def filling(task: Task, amounts: Amounts) -> Amounts:
    """The amounts with which a task may be put before promises to others: it is short if it can give way in time."""
    terms = task.spec.terms
    if not terms.preemptible:
        return amounts
    least = max(terms.min_run or 0.0, FILLER) + task.spec.stop_grace + LEEWAY
    return amounts if amounts.length <= least else replace(amounts, length=least, sure=True)


_Tried = Callable[[Sequence[Allocation]], Coming | None]
"""Tries a set of victims."""


class Preemption:
    """Finds who gives way in one planning pass. `places` are for the tasks whose victims have to be asked now."""

    def __init__(self, nodes: Mapping[str, NodeTimeline], now: float) -> None:
        self.places: dict[str, KeptPlace] = {}
        self._nodes = nodes
        self._now = now
        self._lenders = [node for node in nodes.values() if node.yielding and not node.closed]
        self._asked: dict[str, float] = {}
        self._failed: dict[Shape, list[Amounts]] = {}
        self._found = 0

    # ------------------------------------------------------------------ kept places

    def hold(self, task: Task, shape: Shape, amounts: Amounts, since: float) -> tuple[Placement | Coming, Load] | None:
        """Put a task into the place that is kept for it: now if its victims have gone, else when they have.

        Not before `since`. None if nobody can start on that node; then it may start on another one.
        """
        place = task.kept_place
        node = self._nodes.get(place.node) if place else None
        if place is None or node is None or node.closed:
            return None
        gpus = node.these(place.gpu_uuids)
        left = [victim for victim in place.victims if node.load_of(victim)]
        if not left and since <= self._now and len(gpus) == len(place.gpu_uuids):
            found = node.fit(shape, amounts, self._now, gpus)
            if found is not None and all(gpu.free >= shape.gpu_memory for gpu in found):
                return node.start(shape, amounts, found)
        moment = max(place.until, since, self._now + SOON)
        for victim in left:
            self.ask(node, victim, moment)
        return Coming(moment, node, gpus, tuple(left)), node.put(shape, amounts, gpus, moment, firm=True)

    # ------------------------------------------------------------------ victims

    def ask(self, node: NodeTimeline, victim: str, moment: float) -> None:
        """Let a task end by then, for the rest of this pass."""
        self._asked[victim] = moment
        node.ends(victim, moment)

    def spare(self, node: NodeTimeline, victims: Iterable[str]) -> None:
        """Let tasks stay after all."""
        for victim in victims:
            self._asked.pop(victim, None)
            node.ends(victim, math.inf)

    def ask_all(self, place: Place) -> None:
        """Let those end who give way for a promise."""
        for victim in place.promise.victims:
            self.ask(place.node, victim, place.load.begin)

    def leave(self, place: Place) -> None:
        """Take a task out of its promised place."""
        place.node.take_back(place.gpus, place.load)
        self.spare(place.node, place.promise.victims)

    def enter(self, place: Place) -> Place:
        """Put it there again."""
        self.ask_all(place)
        load = place.node.put(place.shape, place.amounts, place.gpus, place.load.begin, firm=place.load.firm)
        return replace(place, load=load)

    def sooner(self, task: Task, shape: Shape, amounts: Amounts, than: float) -> Coming | None:
        """A place before this time where others give way, or None."""
        if not self.may_ask(task) or self._found >= MOST or len(self._failed) >= KINDS:
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

    def may_ask(self, task: Task) -> bool:
        """Whether others may give way for this task at all."""
        return bool(self._lenders) and not task.spec.terms.preemptible and not asks_nobody(task)

    def keeping(
        self, node: NodeTimeline, shape: Shape, amounts: Amounts, moment: float, gpus: Sequence[GpuTimeline]
    ) -> Coming | None:
        """These GPUs at a time for which they were promised, if those who are there now give way by then."""
        able = [each for each in self._able(node, shape, amounts) if self._gone(each) <= moment]
        return self._fewest(node, shape, amounts, able, moment, gpus) if able else None

    def note(self, task: Task, coming: Coming) -> None:
        """Remember that a task waits for its victims; if they have to be asked now, its place is to be kept."""
        terms = [coming.node.yielding[victim].yields for victim in coming.victims]
        if any(each and coming.moment - each.within <= self._now for each in terms):
            uuids = tuple(gpu.uuid for gpu in coming.gpus)
            self.places[task.id] = KeptPlace(coming.node.name, uuids, coming.victims, coming.moment)

    # ------------------------------------------------------------------ inside

    def _at_once(self, shape: Shape, amounts: Amounts) -> Coming | None:
        """The place for which the fewest give way at once, and have done the least work."""
        nodes = []
        for node in self._lenders:
            able = [each for each in self._able(node, shape, amounts) if each.yields and each.yields.since <= self._now]
            if able and (least := self._least(node, shape, amounts, able)) is not None:
                nodes.append((least, node.order, node, able))
        best: tuple[tuple[int, float], Coming] | None = None
        for least, _, node, able in sorted(nodes, key=lambda each: each[:2]):
            if best and least > best[0]:
                break
            found = self._fewest(node, shape, amounts, able)
            if found and (best is None or self._price(node, found.victims) < best[0]):
                best = self._price(node, found.victims), found
        return best and best[1]

    def _later(self, shape: Shape, amounts: Amounts) -> Coming | None:
        """The first place that will be there when those have gone who may only be asked later."""
        nodes = [
            (min(map(self._gone, able)), node.order, node, able)
            for node in self._lenders
            if (able := self._able(node, shape, amounts))
        ]
        best: Coming | None = None
        for soonest, _, node, able in sorted(nodes, key=lambda each: each[:2])[:LATE_NODES]:
            if best and best.moment <= soonest:
                break
            for each in able:
                node.ends(each.task, self._gone(each))
            found = node.earliest(shape, amounts, self._now)
            self._restore(node, able)
            if found and (best is None or found[0] < best.moment):
                gone = [each for each in able if self._gone(each) <= found[0]]
                best = (gone and self._fewest(node, shape, amounts, gone, found[0])) or best
        return best

    def _able(self, node: NodeTimeline, shape: Shape, amounts: Amounts) -> list[Allocation]:
        """Those on a node that may give way, and hold something that the task needs; the least work first."""
        if not node.admits(shape):
            return []
        any_will_do = bool(shape.exclusive or amounts.cores or amounts.memory)
        suited = set() if any_will_do else {gpu.uuid for gpu in node.suited(shape, later=True)}
        able = [
            each
            for each in node.yielding.values()
            if each.task not in self._asked
            and (any_will_do or not suited.isdisjoint(gpu.uuid for gpu in node.gpus_of(each.task)))
        ]
        return sorted(able, key=lambda each: (self._work(each), each.task))

    def _least(
        self, node: NodeTimeline, shape: Shape, amounts: Amounts, able: Sequence[Allocation]
    ) -> tuple[int, float] | None:
        """At least so many have to give way, with so much work. None if all of them are too few."""
        number = 1
        for lacks, held in (
            (shape.gpus - node.open_to(shape.sharing.rough), [float(len(node.gpus_of(each.task))) for each in able]),
            (amounts.cores - node.free_cores - 1e-9, [each.cores for each in able]),
            (amounts.memory - node.free_memory, [each.memory for each in able]),
        ):
            sums = [0.0, *accumulate(sorted(held, reverse=True))]
            if lacks > sums[-1]:
                return None
            number = max(number, next(count for count, amount in enumerate(sums) if amount >= lacks))
        if shape.exclusive:
            number = len(node.node.allocations)
            if number > len(able):
                return None
        return number, sum(self._work(each) for each in able[:number])

    def _fewest(
        self,
        node: NodeTimeline,
        shape: Shape,
        amounts: Amounts,
        able: Sequence[Allocation],
        moment: float | None = None,
        among: Sequence[GpuTimeline] | None = None,
    ) -> Coming | None:
        """The smallest set of these with which the task fits, at that time or as soon as they have gone."""

        def tried(victims: Sequence[Allocation]) -> Coming | None:
            asked = [self._asked[each] for each in node.yielding if each in self._asked]
            at = moment if moment is not None else max([*asked, *map(self._gone, victims)])
            for each in victims:
                node.ends(each.task, self._gone(each))
            gpus = node.fit(shape, amounts, at, among)
            self._restore(node, victims)
            return None if gpus is None else Coming(at, node, gpus, tuple(each.task for each in victims))

        if tried(able) is None:
            return None
        least = self._least(node, shape, amounts, able)
        trials = 0
        for size in range(least[0] if least else 1, len(able)):
            if math.comb(len(able), size) > SETS:
                return self._pruned(able, tried)
            for victims in sorted(combinations(able, size), key=lambda each: sum(map(self._work, each))):
                if found := tried(victims):
                    return found
                if (trials := trials + 1) > TRIED:
                    return self._pruned(able, tried)
        return tried(able)

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
            node.ends(each.task, math.inf)

    def _gone(self, each: Allocation) -> float:
        """When it has certainly ended if it is asked as soon as it may be."""
        return math.inf if each.yields is None else max(self._now, each.yields.since) + each.yields.within

    def _work(self, each: Allocation) -> float:
        """The GPU-seconds that it has used."""
        began = each.yields.began if each.yields else self._now
        return weight(len(each.gpu_uuids)) * max(0.0, self._now - began)

    def _price(self, node: NodeTimeline, victims: Sequence[str]) -> tuple[int, float]:
        return len(victims), sum(self._work(node.yielding[each]) for each in victims)
