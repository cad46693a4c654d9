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
from dataclasses import dataclass, field

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Blocked, KeptPlace, Placement, Task
from agentless.rules.scheduling.batches import Turns
from agentless.rules.scheduling.gangs import GangPlan, units
from agentless.rules.scheduling.preemption.victims import Held, Preemption, filling, may_ask
from agentless.rules.scheduling.prerequisites import in_turn
from agentless.rules.scheduling.search import Cost, Search, Searches
from agentless.rules.scheduling.stay import UNKNOWN, Stay
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline
from agentless.rules.scheduling.timeline.kept import Kept
from agentless.rules.scheduling.timeline.node import NOTHING, NodeTimeline
from agentless.rules.scheduling.timeline.promise import Coming, Place, Promise, is_afterwards
from agentless.rules.scheduling.together import Want
from agentless.rules.scheduling.wants import Wants, favoured_owners
from agentless.rules.tasks.gangs.gangs import members_together

PROMISES = 100
"""The most promises of one pass to pending tasks, and to blocked ones. To plan for all would take too long."""

STARTS = 500
"""The most tasks that one pass starts. The others follow in the next pass."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is shown of a pending task: its position from 1 on, why it does not start, and its promise."""

    position: int | None = None
    reason: str = ""
    promise: Promise | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """By task id: the tasks to start now, in the order of the queue, and the promises of others (None: no promise).

    `places` are to be kept for these tasks, since others have to give way for them now.
    """

    starts: Mapping[str, Placement] = field(default_factory=dict)
    promises: Mapping[str, Promise | None] = field(default_factory=dict)
    places: Mapping[str, KeptPlace] = field(default_factory=dict)


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
    (`rules/scheduling/timeline/learned`). `placed` are all live tasks: those that have a place count for
    `--max-parallel`, and those that others wait for. A blocked task is promised a place if it is known when those end,
    but never starts.
    """
    nodes = [NodeTimeline(node, order, now, lengths) for order, node in enumerate(cluster.nodes.values())]
    names = {node.name: node for node in nodes}
    wants = Wants(favoured_owners(nodes, queue), lengths)
    placed, queue = list(placed), in_turn(queue)
    turns = Turns(queue, placed, names)
    searches = Searches(nodes, policies)
    giving = Preemption(names, now, searches)
    begun: dict[str, Placement] = {}
    promised: dict[str, Promise | None] = {}
    queue = _held(queue, now, wants, turns, giving, begun, promised)
    gangs_and_others = units(queue)
    kept = Kept(names, before.promises if before else {}, now, wants, giving).places(gangs_and_others, turns.copy())
    weak: dict[str, Place] = {}  # promised in this pass, on nodes with reservations
    gangs = GangPlan(searches, nodes, giving, kept, weak, gangs_and_others)
    given, about = {True: 0, False: 0}, False  # promises to blocked tasks and to others; whether one is an estimate
    for task, *mates in gangs_and_others:
        if begun and len(begun) + len(mates) >= starts:
            break
        if mates:
            if not isinstance(task.status, Blocked):
                told = gangs.place((task, *mates), wants, may_wait=given[False] < promises, unsure=about)
                begun |= told.starts
                promised |= told.promises
                given[False], about = given[False] + told.given, about or told.about
            continue
        shape, amounts = want = wants.of(task)
        if mine := kept.pop(task.id, None):
            giving.leave(mine)
            searches.changed(mine.node)
        ahead, found, is_blocked = turns.before(task), None, isinstance(task.status, Blocked)
        if is_blocked and ahead is UNKNOWN:
            continue
        search = searches.of(shape)
        if ahead is None:
            found = search.now(filling(task, amounts), mine.node if mine else None)
            found = found or _instead(gangs, giving, kept, weak, searches, want)
        if not found and mine and mine.amounts != amounts:
            shape, amounts = want = mine.shape, mine.amounts  # late, it ends in the time of another one
            found = _there(giving, mine) if ahead is None else None
        if found:
            node, gpus = found
            begun[task.id], load = node.start(shape, amounts, gpus)
        elif given[is_blocked] < promises and (coming := _coming(search, giving, task, want, ahead, mine)):
            unsure = about or not (ahead is None or ahead.sure)
            place = _promised(giving, coming, task, want, mine, unsure=unsure)
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
    return Plan(begun, promised | {task: place.promise for task, place in (kept | weak).items()}, giving.places())


def _held(
    queue: Sequence[Task],
    now: float,
    wants: Wants,
    turns: Turns,
    giving: Preemption,
    begun: dict[str, Placement],
    promised: dict[str, Promise | None],
) -> Sequence[Task]:
    """Put tasks into the places that are kept for them, before anything else is planned. Returns the other tasks."""
    if not any(task.kept_place for task in queue):
        return queue
    kept = list[tuple[tuple[Task, ...], list[Held], bool]]()
    whole = [unit for unit in members_together(queue) if len(unit) == unit[0].spec.gang_size]
    for unit in sorted((unit for unit in whole if all(task.kept_place for task in unit)), key=_due):
        ahead = turns.before(unit[0])
        held = giving.hold(unit, [wants.of(task) for task in unit], ahead.end if ahead else now)
        if held is None:
            continue
        kept.append((unit, held, ahead is None))
        for task, (_, load) in zip(unit, held, strict=True):
            turns.add(task, Stay(load.end))
    # Not before all have their places: who can start may do so before its time, but in nobody's place.
    for unit, held, may_start in kept:
        starts = giving.begin(unit, [wants.of(task) for task in unit], held) if may_start else None
        if starts:
            begun |= {task.id: placement for task, (placement, _) in zip(unit, starts, strict=True)}
        else:
            promised |= {task.id: coming.promise() for task, (coming, _) in zip(unit, held, strict=True)}
    placed = {task.id for unit, _, _ in kept for task in unit}
    return [task for task in queue if task.id not in placed]


def _due(unit: Sequence[Task]) -> float:
    return max(place.until for task in unit if (place := task.kept_place))


def _coming(
    search: Search, giving: Preemption, task: Task, want: Want, ahead: Stay | None, mine: Place | None
) -> Coming | None:
    """The first place for a task that does not start now, with others giving way only if that is sooner.

    If its batch is at its limit, the place of the task `ahead`: so it blocks no place that it may not use yet.
    """
    coming = _after(search, want, ahead)
    if mine and mine.promise.victims and (coming is None or mine.load.begin < coming.moment):
        coming = mine.coming
    if ahead is None:
        coming = giving.sooner(task, *want, coming.moment if coming else math.inf) or coming
    return coming


def _after(search: Search, want: Want, ahead: Stay | None) -> Coming | None:
    """The first place where nobody gives way."""
    shape, amounts = want
    if ahead and ahead.end > FAR:
        return None
    if ahead and ahead.node and ahead.node.admits(shape):
        gpus = ahead.node.fit(shape, amounts, ahead.end, ahead.gpus)
        if gpus is not None:
            return Coming(ahead.end, ahead.node, gpus)
    found = search.later(amounts, ahead.end) if ahead else search.later(amounts)
    return Coming(*found) if found else None


def _promised(giving: Preemption, coming: Coming, task: Task, want: Want, mine: Place | None, *, unsure: bool) -> Place:
    """Put a task where it will start; `mine` is what it was promised before.

    `unsure`: one who is in front is not sure of its place, and may come to want this one.
    """
    shape, amounts = want
    if mine and mine.promise.firm and coming.node.unsure and not coming.victims:
        # A certain time is worth more than one that rests on what was learned.
        coming, promise = mine.coming, mine.promise
    else:
        (coming,), certain = giving.relying((task,), (coming,), (want,))
        promise = coming.promise(about=unsure or not certain or coming.node.unsure)
    giving.ask(coming.node, coming.victims, coming.moment)
    giving.note((task,), (coming,))
    lends = may_ask((task,))
    load = coming.node.put(shape, amounts, coming.gpus, coming.moment, firm=promise.firm, lends=lends)
    return Place(coming.node, shape, amounts, coming.gpus, load, promise)


def _there(giving: Preemption, mine: Place) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
    """The place that was promised, if it is free now."""
    gpus = giving.now_there(mine.coming, (mine.shape, mine.amounts))
    return None if gpus is None else (mine.node, gpus)


def _instead(
    gangs: GangPlan,
    giving: Preemption,
    kept: dict[str, Place],
    weak: dict[str, Place],
    searches: Searches,
    want: Want,
) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
    """A place from now on where only promises to tasks behind this one are in the way. They give way.

    So do promises to others for a time after a reservation, if the owner of this task has the reservation.
    """
    shape, amounts = want
    weaker = kept
    if shape.owner and weak:
        weaker = kept | {task: place for task, place in weak.items() if is_afterwards(place, shape.owner)}
    if not weaker:
        return None
    for node in {place.node.name: place.node for place in weaker.values()}.values():
        if node.open_to(shape.sharing.rough) < shape.gpus or not node.admits(shape):
            continue
        there = {task: place for task, place in weaker.items() if place.node is node}
        for place in there.values():
            giving.leave(place)
        if (gpus := node.fit(shape, amounts, node.now)) is not None:
            for task in there:
                gangs.drop(task)
            searches.changed(node)
            searches.forget()  # whoever gave way may have left more capacity than was taken
            return node, gpus
        for task, place in there.items():
            (kept if task in kept else weak)[task] = giving.enter(place)
    return None
