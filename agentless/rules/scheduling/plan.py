"""Who starts now, where, and when the others will: one look at the queue.

Tasks are looked at in their order. One that fits now is placed. One that does not is promised the first place that will
be free long enough, and what comes after it may run before it only where that does not touch the promise
(conservative backfill). A task without a time limit never ends, as far as anybody can know: it is not put in front of a
promise on the same GPUs. What was promised in the look before is kept, unless one who comes before can start there now:
so a promise comes true or earlier, as long as no task outlasts its limit, and the order of the queue stands above it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Placement, Task
from agentless.rules.scheduling.batches import Stay, Turns
from agentless.rules.scheduling.gpu_timeline import FAR, GpuTimeline
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.node_timeline import NOTHING, NodeTimeline
from agentless.rules.scheduling.search import Cost, Search, Searches
from agentless.rules.scheduling.shape import Amounts, Shape, shape_of

PROMISES = 100
"""So many of the tasks that wait are promised a place: to look into the future for all of them would take too long."""

STARTS = 500
"""So many tasks are started by one look at most; those behind them are looked at in the next one."""

LATE = 5.0
"""Seconds that a promise is put off by at most when somebody is over its time, as long as until that is seen."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Where a task will start, and when (Unix seconds) at the latest; None: when something ends that has no limit.

    It starts `about` then where that rests on what was learned of tasks without a limit.
    """

    node: str
    start: float | None
    gpu_uuids: tuple[str, ...] = ()
    about: bool = False

    @property
    def firm(self) -> bool:
        """Whether it names a certain time."""
        return self.start is not None and not self.about


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one who waits is told: the place in the queue from 1 on, why it does not start, and what it is promised."""

    position: int | None = None
    reason: str = ""
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """By task id: what is to be started now, in the order of the queue, and what others are promised, None: nothing."""

    starts: Mapping[str, Placement] = field(default_factory=dict)
    promises: Mapping[str, Promise | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a task is promised to run, as it is put into the timeline."""

    node: NodeTimeline
    shape: Shape
    amounts: Amounts
    gpus: list[GpuTimeline]
    load: Load
    promise: Promise


def plan(
    cluster: Cluster,
    queue: Sequence[Task],
    now: float,
    policies: Mapping[str | None, Cost],
    before: Plan | None = None,
    *,
    promises: int = PROMISES,
    starts: int = STARTS,
    lengths: Mapping[str, float] = NOTHING,
    placed: Iterable[Task] = (),
) -> Plan:
    """The plan for a queue that is in order, after the plan `before`.

    `policies` by name, under None the one that is used otherwise. `lengths` are the seconds that tasks without a limit
    are expected to take, by task (`rules/scheduling/learned`). `placed` are the tasks that have a place already: they
    count where only so many of a batch may run at a time.
    """
    nodes = [NodeTimeline(node, order, now, lengths) for order, node in enumerate(cluster.nodes.values())]
    favoured = _favoured(nodes, queue)
    names = {node.name: node for node in nodes}
    placed = [task for task in placed if task.spec.terms.max_parallel is not None]
    kept = _kept(names, queue, now, before or Plan(), favoured, lengths, Turns(placed, names))
    turns, searches = Turns(placed, names), Searches(nodes, policies)
    begun: dict[str, Placement] = {}
    promised: dict[str, Promise | None] = {}
    weak: dict[str, _Place] = {}  # promised in this look where something is reserved
    given, about = 0, False
    for task in queue:
        shape, amounts = _shaped(task, favoured), amounts_of(task, lengths)
        if mine := kept.pop(task.id, None):
            mine.node.take_back(mine.gpus, mine.load)
            searches.changed(mine.node)
        search, ahead, found = searches.of(shape), turns.before(task), None
        if ahead is None:
            found = search.now(amounts, mine.node if mine else None)
            found = found or _instead(kept, weak, searches, shape, amounts)
        if found:
            node, gpus = found
            begun[task.id], load = node.start(shape, amounts, gpus)
        elif given < promises and (coming := _coming(search, shape, amounts, ahead)):
            place = _promised(coming, shape, amounts, mine, unsure=about or not (ahead is None or ahead.sure))
            node, gpus, load = place.node, place.gpus, place.load
            if node.reservations:
                weak[task.id] = place
            promised[task.id] = None if node.reservations else place.promise
            given, about = given + 1, about or place.promise.about
        else:
            promised[task.id] = None
            continue
        turns.add(task, Stay(load.end, node, gpus, load.sure))
        searches.changed(node)
        if len(begun) == starts:
            break
    return Plan(begun, promised | {task: place.promise for task, place in (kept | weak).items()})


def _favoured(nodes: Iterable[NodeTimeline], queue: Iterable[Task]) -> frozenset[str]:
    """The owners for whom something is reserved somewhere."""
    reservations = [reservation for node in nodes for reservation in node.reservations]
    if not reservations:
        return frozenset()
    owners = {task.owner for task in queue}
    return frozenset(owner for owner in owners if any(each.lets(owner) for each in reservations))


def _shaped(task: Task, favoured: frozenset[str]) -> Shape:
    return shape_of(task.spec, task.owner if task.owner in favoured else "")


def _kept(
    nodes: Mapping[str, NodeTimeline],
    queue: Iterable[Task],
    now: float,
    before: Plan,
    favoured: frozenset[str],
    lengths: Mapping[str, float],
    turns: Turns,
) -> dict[str, _Place]:
    """What was promised before, put in again, up to the first task that is new or whose promise cannot be kept.

    Those behind it have less right to their places than it has to one.
    """
    kept: dict[str, _Place] = {}
    for task in queue:
        if task.id not in before.promises:
            break
        if (promise := before.promises[task.id]) is None:
            continue
        shape, amounts = _shaped(task, favoured), amounts_of(task, lengths)
        begin = FAR if promise.start is None else max(promise.start, now)
        node = nodes.get(promise.node)
        ahead = turns.before(task)
        since = max(begin, ahead.end) if ahead else begin
        coming = node.earliest(shape, amounts, since, node.these(promise.gpu_uuids)) if node else None
        if node is None or coming is None or coming[0] > begin + LATE:
            break
        moment, gpus = coming
        if promise.start is not None:
            promise = replace(promise, start=moment)
        load = node.put(shape, amounts, gpus, moment, firm=promise.firm)
        kept[task.id] = _Place(node, shape, amounts, gpus, load, promise)
        turns.add(task, Stay(load.end, node, gpus))
    return kept


def _coming(
    search: Search, shape: Shape, amounts: Amounts, ahead: Stay | None
) -> tuple[float, NodeTimeline, list[GpuTimeline]] | None:
    """The first place of one that does not start now: of one whose turn it is not yet, that of the one `ahead`.

    Then it keeps nobody from what it may not use before.
    """
    if ahead is None:
        return search.later(amounts)
    if ahead.end > FAR:
        return None
    if ahead.node and ahead.node.admits(shape):
        gpus = ahead.node.fit(shape, amounts, ahead.end, ahead.gpus)
        if gpus is not None:
            return ahead.end, ahead.node, gpus
    return search.later(amounts, ahead.end)


def _promised(
    coming: tuple[float, NodeTimeline, list[GpuTimeline]],
    shape: Shape,
    amounts: Amounts,
    mine: _Place | None,
    *,
    unsure: bool,
) -> _Place:
    """Put a task where it will start; `mine` is what it was promised before.

    `unsure`: one who is in front is not sure of its place, and may come to want this one.
    """
    moment, node, gpus = coming
    if mine and mine.promise.firm and node.unsure:
        # A certain time is worth more than one that rests on what was learned.
        moment, node, gpus, promise = mine.load.begin, mine.node, mine.gpus, mine.promise
    else:
        start = None if moment >= FAR else moment
        about = start is not None and (unsure or node.unsure)
        promise = Promise(node.name, start, tuple(gpu.uuid for gpu in gpus), about)
    load = node.put(shape, amounts, gpus, moment, firm=promise.firm)
    return _Place(node, shape, amounts, gpus, load, promise)


def _instead(
    kept: dict[str, _Place], weak: dict[str, _Place], searches: Searches, shape: Shape, amounts: Amounts
) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
    """A place from now on where only promises to tasks behind this one are in the way: it has more right to it.

    So has one in the time that is reserved for its owner: what was promised to others for afterwards gives way to it.
    """
    weaker = kept
    if shape.owner and weak:
        weaker = kept | {task: place for task, place in weak.items() if _is_afterwards(place, shape.owner)}
    for node in {place.node.name: place.node for place in weaker.values()}.values():
        if node.open_to(shape.sharing.rough) < shape.gpus or not node.admits(shape):
            continue
        there = {task: place for task, place in weaker.items() if place.node is node}
        for place in there.values():
            node.take_back(place.gpus, place.load)
        if (gpus := node.fit(shape, amounts, node.now)) is not None:
            for task in there:
                (kept if task in kept else weak).pop(task)
            searches.changed(node)
            searches.forget()  # whoever gave way may have left more capacity than was taken
            return node, gpus
        for task, place in there.items():
            again = node.put(place.shape, place.amounts, place.gpus, place.load.begin, firm=place.load.firm)
            (kept if task in kept else weak)[task] = replace(place, load=again)
    return None


def _is_afterwards(place: _Place, owner: str) -> bool:
    """Whether somebody else is promised, for afterwards, what is reserved for this owner now."""
    return any(
        each.begin <= place.node.now < each.end <= place.load.begin
        and each.lets(owner)
        and not each.lets(place.shape.owner)
        and (place.shape.exclusive or not each.gpus or any(each.covers(gpu.index) for gpu in place.gpus))
        for each in place.node.reservations
    )


def amounts_of(task: Task, lengths: Mapping[str, float] = NOTHING) -> Amounts:
    """What a task wants of cores and memory, and for how long: by its limit, else by what was learned."""
    spec, limit = task.spec, task.spec.ends_within
    learned = lengths.get(task.id) if limit is None else None
    return Amounts(spec.cores or 0.0, float(spec.memory or 0), limit or learned or math.inf, learned is None)
