"""One planning pass over the queue: which tasks start now, where, and when the others will.

Tasks are planned in order. A task that fits now is placed. Otherwise it is promised the first place that will be free
long enough, and later tasks may start before it only if they do not delay the promise (conservative backfill). A task
without a time limit counts as endless, so it is never placed before a promise on the same GPUs. Promises of the
previous pass are kept, unless a task ahead can start there now. So a promise holds or improves as long as no task
exceeds its limit, and the order of the queue takes precedence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Blocked, Placement, Task
from agentless.rules.scheduling.batches import Turns
from agentless.rules.scheduling.gangs import GangPlan, units
from agentless.rules.scheduling.gpu_timeline import FAR, GpuTimeline
from agentless.rules.scheduling.node_timeline import NOTHING, NodeTimeline
from agentless.rules.scheduling.prerequisites import in_turn
from agentless.rules.scheduling.promise import Place, Promise, is_afterwards
from agentless.rules.scheduling.search import Cost, Search, Searches
from agentless.rules.scheduling.shape import Amounts, Shape, shape_of
from agentless.rules.scheduling.stay import UNKNOWN, Stay
from agentless.rules.scheduling.together import Together

PROMISES = 100
"""The most promises of one pass to pending tasks, and to blocked ones. To plan for all would take too long."""

STARTS = 500
"""The most tasks that one pass starts. The others follow in the next pass."""

LATE = 5.0
"""The most seconds by which a promise is delayed if a task is over its time and its end is not seen yet."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is shown of a pending task: its position from 1 on, why it does not start, and its promise."""

    position: int | None = None
    reason: str = ""
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """By task id: the tasks to start now, in the order of the queue, and the promises of others (None: no promise)."""

    starts: Mapping[str, Placement] = field(default_factory=dict)
    promises: Mapping[str, Promise | None] = field(default_factory=dict)


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
    """Plan a sorted queue, after the previous plan `before`.

    `policies` are by name, the default under None. `lengths` are estimated seconds of tasks without a limit, by task id
    (`rules/scheduling/learned`). `placed` are all live tasks: those that have a place count for `--max-parallel`, and
    those that others wait for. A blocked task is promised a place if it is known when those end, but never starts.
    """
    nodes = [NodeTimeline(node, order, now, lengths) for order, node in enumerate(cluster.nodes.values())]
    favoured = _favoured(nodes, queue)
    names = {node.name: node for node in nodes}
    placed, queue = list(placed), in_turn(queue)
    kept = _kept(names, queue, now, before or Plan(), favoured, lengths, Turns(queue, placed, names))
    turns, searches = Turns(queue, placed, names), Searches(nodes, policies)
    begun: dict[str, Placement] = {}
    promised: dict[str, Promise | None] = {}
    weak: dict[str, Place] = {}  # promised in this pass, on nodes with reservations
    gangs = GangPlan(searches, Together(searches, nodes), kept, weak, queue)
    given, about = {True: 0, False: 0}, False  # promises to blocked tasks and to others; whether one is an estimate
    for task, *mates in units(queue):
        if begun and len(begun) + len(mates) >= starts:
            break
        if mates:
            if not isinstance(task.status, Blocked):
                wants = [(_shaped(each, favoured), amounts_of(each, lengths)) for each in (task, *mates)]
                told = gangs.place((task, *mates), wants, may_wait=given[False] < promises, unsure=about)
                begun |= told.starts
                promised |= told.promises
                given[False], about = given[False] + told.given, about or told.about
            continue
        shape, amounts = _shaped(task, favoured), amounts_of(task, lengths)
        if mine := kept.pop(task.id, None):
            mine.node.take_back(mine.gpus, mine.load)
            searches.changed(mine.node)
        ahead, found, is_blocked = turns.before(task), None, isinstance(task.status, Blocked)
        if is_blocked and ahead is UNKNOWN:
            continue
        search = searches.of(shape)
        if ahead is None:
            found = search.now(amounts, mine.node if mine else None)
            found = found or _instead(gangs, kept, weak, searches, shape, amounts)
        if found:
            node, gpus = found
            begun[task.id], load = node.start(shape, amounts, gpus)
        elif given[is_blocked] < promises and (coming := _coming(search, shape, amounts, ahead)):
            place = _promised(coming, shape, amounts, mine, unsure=about or not (ahead is None or ahead.sure))
            node, gpus, load = place.node, place.gpus, place.load
            if node.reservations:
                weak[task.id] = place
            promised[task.id] = None if node.reservations else place.promise
            given[is_blocked] += 1
            about = about or (place.promise.about and not is_blocked)
        else:
            promised[task.id] = None
            continue
        turns.add(task, Stay(load.end, node, gpus, load.sure))
        searches.changed(node)
    return Plan(begun, promised | {task: place.promise for task, place in (kept | weak).items()})


def _favoured(nodes: Iterable[NodeTimeline], queue: Iterable[Task]) -> frozenset[str]:
    """The owners with a reservation."""
    reservations = [reservation for node in nodes for reservation in node.reservations]
    if not reservations:
        return frozenset()
    owners = {task.owner for task in queue}
    return frozenset(owner for owner in owners if any(each.lets(owner) for each in reservations))


def _shaped(task: Task, favoured: frozenset[str]) -> Shape:
    return shape_of(task.spec, task.owner if task.owner in favoured else "")


def _kept(
    nodes: Mapping[str, NodeTimeline],
    queue: Sequence[Task],
    now: float,
    before: Plan,
    favoured: frozenset[str],
    lengths: Mapping[str, float],
    turns: Turns,
) -> dict[str, Place]:
    """The earlier promises, entered again, up to the first task that is new or whose promise cannot be kept.

    The tasks behind that one must not take a place that it could have.
    """
    kept: dict[str, Place] = {}
    for unit in units(queue):
        ahead, is_blocked = turns.before(unit[0]), isinstance(unit[0].status, Blocked)
        if is_blocked and (ahead is UNKNOWN or len(unit) > 1):
            continue
        if any(task.id not in before.promises for task in unit):
            break
        if any(before.promises[task.id] is None for task in unit):
            continue
        places = _kept_of(nodes, unit, now, before, favoured, lengths, turns)
        if places is None and is_blocked:
            continue
        if places is None:
            break
        kept |= places
    return kept


def _kept_of(
    nodes: Mapping[str, NodeTimeline],
    unit: Sequence[Task],
    now: float,
    before: Plan,
    favoured: frozenset[str],
    lengths: Mapping[str, float],
    turns: Turns,
) -> dict[str, Place] | None:
    """The earlier promise of a task, or those of all members of a gang at one time, entered again; None if not kept."""
    promises = [promise for task in unit if (promise := before.promises[task.id])]
    start, ahead = promises[0].start, turns.before(unit[0])
    begin = FAR if start is None else max(start, now)
    moment, last = (max(begin, ahead.end) if ahead else begin), -math.inf
    spots = list[tuple[NodeTimeline, Shape, Amounts, list[GpuTimeline]]]()
    while moment > last:
        last, spots = moment, []
        for task, promise in zip(unit, promises, strict=True):
            shape, amounts, node = _shaped(task, favoured), amounts_of(task, lengths), nodes.get(promise.node)
            coming = node.earliest(shape, amounts, last, node.these(promise.gpu_uuids)) if node else None
            if node is None or coming is None or coming[0] > begin + LATE:
                return None
            moment = max(moment, coming[0])
            spots.append((node, shape, amounts, coming[1]))
    kept = {}
    for task, promise, (node, shape, amounts, gpus) in zip(unit, promises, spots, strict=True):
        load = node.put(shape, amounts, gpus, moment, firm=promise.firm)
        shifted = promise if start is None else replace(promise, start=moment)
        kept[task.id] = Place(node, shape, amounts, gpus, load, shifted)
        turns.add(task, Stay(load.end, node, gpus))
    return kept


def _coming(
    search: Search, shape: Shape, amounts: Amounts, ahead: Stay | None
) -> tuple[float, NodeTimeline, list[GpuTimeline]] | None:
    """The first place for a task that does not start now. If its batch is at its limit, the place of the task `ahead`.

    So it blocks no place that it may not use yet.
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
    mine: Place | None,
    *,
    unsure: bool,
) -> Place:
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
    return Place(node, shape, amounts, gpus, load, promise)


def _instead(
    gangs: GangPlan,
    kept: dict[str, Place],
    weak: dict[str, Place],
    searches: Searches,
    shape: Shape,
    amounts: Amounts,
) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
    """A place from now on where only promises to tasks behind this one are in the way. They give way.

    So do promises to others for a time after a reservation, if the owner of this task has the reservation.
    """
    weaker = kept
    if shape.owner and weak:
        weaker = kept | {task: place for task, place in weak.items() if is_afterwards(place, shape.owner)}
    for node in {place.node.name: place.node for place in weaker.values()}.values():
        if node.open_to(shape.sharing.rough) < shape.gpus or not node.admits(shape):
            continue
        there = {task: place for task, place in weaker.items() if place.node is node}
        for place in there.values():
            node.take_back(place.gpus, place.load)
        if (gpus := node.fit(shape, amounts, node.now)) is not None:
            for task in there:
                gangs.drop(task)
            searches.changed(node)
            searches.forget()  # whoever gave way may have left more capacity than was taken
            return node, gpus
        for task, place in there.items():
            again = node.put(place.shape, place.amounts, place.gpus, place.load.begin, firm=place.load.firm)
            (kept if task in kept else weak)[task] = replace(place, load=again)
    return None


def amounts_of(task: Task, lengths: Mapping[str, float] = NOTHING) -> Amounts:
    """The cores, memory and length of a task. The length is its limit, else the estimate."""
    spec, limit = task.spec, task.spec.ends_within
    learned = lengths.get(task.id) if limit is None else None
    return Amounts(spec.cores or 0.0, float(spec.memory or 0), limit or learned or math.inf, learned is None)
