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
from agentless.model.tasks.task import KeptPlace, Placement, Task
from agentless.rules.scheduling.batches import Stay, Turns
from agentless.rules.scheduling.gpu_timeline import FAR, GpuTimeline
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.node_timeline import NOTHING, NodeTimeline
from agentless.rules.scheduling.preemption import FILLER, Coming, Preemption
from agentless.rules.scheduling.search import Cost, Search, Searches
from agentless.rules.scheduling.shape import Amounts, Shape, shape_of
from agentless.rules.tasks.preemptible import LEEWAY

PROMISES = 100
"""The most promises of one pass. To plan the future of all pending tasks would take too long."""

STARTS = 500
"""The most tasks that one pass starts. The others follow in the next pass."""

LATE = 5.0
"""The most seconds by which a promise is delayed if a task is over its time and its end is not seen yet."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Where a task will start, and when at the latest (Unix seconds). None: when a task without a limit ends.

    `about`: the time is an estimate, from earlier runs of tasks without a limit. `victims` are tasks, by id, that give
    way for it.
    """

    node: str
    start: float | None
    gpu_uuids: tuple[str, ...] = ()
    about: bool = False
    victims: tuple[str, ...] = ()

    @property
    def firm(self) -> bool:
        """Whether it names a certain time."""
        return self.start is not None and not self.about


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


@dataclass(frozen=True, slots=True)
class _Place:
    """A promise as an entry of a timeline."""

    node: NodeTimeline
    shape: Shape
    amounts: Amounts
    gpus: list[GpuTimeline]
    load: Load
    promise: Promise

    @property
    def coming(self) -> Coming:
        """The same as a place that is found."""
        return Coming(self.load.begin, self.node, self.gpus, self.promise.victims)


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
    (`rules/scheduling/learned`). `placed` are tasks that have a place already: they count for `--max-parallel`.
    """
    nodes = [NodeTimeline(node, order, now, lengths) for order, node in enumerate(cluster.nodes.values())]
    favoured = _favoured(nodes, queue)
    names = {node.name: node for node in nodes}
    placed = [task for task in placed if task.spec.terms.max_parallel is not None]
    giving = Preemption(names, now)
    begun: dict[str, Placement] = {}
    promised: dict[str, Promise | None] = {}
    turns, earlier, searches = Turns(placed, names), Turns(placed, names), Searches(nodes, policies)
    queue = _held(queue, now, favoured, lengths, (turns, earlier), giving, begun, promised)
    kept = _kept(names, queue, now, before or Plan(), favoured, lengths, earlier, giving)
    can_fill = not any(task.victims for task in queue)
    weak: dict[str, _Place] = {}  # promised in this pass, on nodes with reservations
    given, about = 0, False
    for task in queue:
        shape, amounts = _shaped(task, favoured), amounts_of(task, lengths)
        if mine := kept.pop(task.id, None):
            _leave(mine, giving)
            searches.changed(mine.node)
        search, ahead, found = searches.of(shape), turns.before(task), None
        if ahead is None:
            found = search.now(_filling(task, amounts) if can_fill else amounts, mine.node if mine else None)
            found = found or _instead(kept, weak, searches, shape, amounts, giving)
        if found:
            node, gpus = found
            begun[task.id], load = node.start(shape, amounts, gpus)
        elif given < promises and (coming := _coming(search, task, shape, amounts, ahead, mine, giving)):
            place = _promised(
                coming, task, shape, amounts, mine, giving, unsure=about or not (ahead is None or ahead.sure)
            )
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
    return Plan(begun, promised | {task: place.promise for task, place in (kept | weak).items()}, giving.places)


def _held(
    queue: Sequence[Task],
    now: float,
    favoured: frozenset[str],
    lengths: Mapping[str, float],
    several_turns: Sequence[Turns],
    giving: Preemption,
    begun: dict[str, Placement],
    promised: dict[str, Promise | None],
) -> list[Task]:
    """Put tasks into the places that are kept for them, before anything else is planned. Returns the other tasks."""
    others = []
    for task in queue:
        if task.kept_place is None:
            others.append(task)
            continue
        ahead = several_turns[0].before(task)
        since = ahead.end if ahead else now
        found = giving.hold(task, _shaped(task, favoured), amounts_of(task, lengths), since)
        if found is None:
            others.append(task)
            continue
        place, load = found
        if isinstance(place, Placement):
            begun[task.id] = place
        else:
            promised[task.id] = _promise_of(place)
        for turns in several_turns:
            turns.add(task, Stay(load.end))
    return others


def _filling(task: Task, amounts: Amounts) -> Amounts:
    """The amounts with which a task may be put before promises to others: it is short if it can give way in time."""
    terms = task.spec.terms
    if not terms.preemptible:
        return amounts
    least = max(terms.min_run or 0.0, FILLER) + task.spec.stop_grace + LEEWAY
    return amounts if amounts.length <= least else replace(amounts, length=least, sure=True)


def _promise_of(coming: Coming, *, about: bool = False) -> Promise:
    start = None if coming.moment >= FAR else coming.moment
    uuids = tuple(gpu.uuid for gpu in coming.gpus)
    return Promise(coming.node.name, start, uuids, about and start is not None, coming.victims)


def _leave(place: _Place, giving: Preemption) -> None:
    """Take a task out of its promised place."""
    place.node.take_back(place.gpus, place.load)
    giving.spare(place.node, place.promise.victims)


def _enter(place: _Place, giving: Preemption) -> _Place:
    """Put it there again."""
    for victim in place.promise.victims:
        giving.ask(place.node, victim, place.load.begin)
    load = place.node.put(place.shape, place.amounts, place.gpus, place.load.begin, firm=place.load.firm)
    return replace(place, load=load)


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
    queue: Iterable[Task],
    now: float,
    before: Plan,
    favoured: frozenset[str],
    lengths: Mapping[str, float],
    turns: Turns,
    giving: Preemption,
) -> dict[str, _Place]:
    """The earlier promises, entered again, up to the first task that is new or whose promise cannot be kept.

    The tasks behind that one must not take a place that it could have.
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
        coming = _again(node, task, shape, amounts, since, promise, giving) if node else None
        if node is None or coming is None or coming.moment > begin + LATE:
            break
        promise = replace(promise, start=promise.start and coming.moment, victims=coming.victims)
        load = node.put(shape, amounts, coming.gpus, coming.moment, firm=promise.firm)
        kept[task.id] = _Place(node, shape, amounts, coming.gpus, load, promise)
        turns.add(task, Stay(load.end, node, coming.gpus))
    return kept


def _again(
    node: NodeTimeline,
    task: Task,
    shape: Shape,
    amounts: Amounts,
    since: float,
    promise: Promise,
    giving: Preemption,
) -> Coming | None:
    """A promised place from its time on; preemptible tasks that are there give way, as soon as they have to."""
    these = node.these(promise.gpu_uuids)
    found = node.earliest(shape, amounts, since, these)
    if found and found[0] <= since + LATE:
        return Coming(found[0], node, found[1])
    for late in (0.0, LATE) if giving.may_ask(task) else ():
        if coming := giving.keeping(node, shape, amounts, since + late, these):
            for victim in coming.victims:
                giving.ask(node, victim, coming.moment)
            return coming
    return None


def _coming(
    search: Search,
    task: Task,
    shape: Shape,
    amounts: Amounts,
    ahead: Stay | None,
    mine: _Place | None,
    giving: Preemption,
) -> Coming | None:
    """The first place for a task that does not start now, with others giving way only if that is sooner.

    If its batch is at its limit, the place of the task `ahead`: so it blocks no place that it may not use yet.
    """
    coming = _after(search, shape, amounts, ahead)
    if mine and mine.promise.victims and (coming is None or mine.load.begin < coming.moment):
        coming = mine.coming
    if ahead is None:
        coming = giving.sooner(task, shape, amounts, coming.moment if coming else math.inf) or coming
    return coming


def _after(search: Search, shape: Shape, amounts: Amounts, ahead: Stay | None) -> Coming | None:
    """The first place where nobody gives way."""
    if ahead and ahead.end > FAR:
        return None
    if ahead and ahead.node and ahead.node.admits(shape):
        gpus = ahead.node.fit(shape, amounts, ahead.end, ahead.gpus)
        if gpus is not None:
            return Coming(ahead.end, ahead.node, gpus)
    found = search.later(amounts, ahead.end) if ahead else search.later(amounts)
    return Coming(*found) if found else None


def _promised(
    coming: Coming,
    task: Task,
    shape: Shape,
    amounts: Amounts,
    mine: _Place | None,
    giving: Preemption,
    *,
    unsure: bool,
) -> _Place:
    """Put a task where it will start; `mine` is what it was promised before.

    `unsure`: one who is in front is not sure of its place, and may come to want this one.
    """
    if mine and mine.promise.firm and coming.node.unsure and not coming.victims:
        # A certain time is worth more than one that rests on what was learned.
        coming, promise = mine.coming, mine.promise
    else:
        promise = _promise_of(coming, about=unsure or coming.node.unsure)
    for victim in coming.victims:
        giving.ask(coming.node, victim, coming.moment)
    giving.note(task, coming)
    load = coming.node.put(shape, amounts, coming.gpus, coming.moment, firm=promise.firm)
    return _Place(coming.node, shape, amounts, coming.gpus, load, promise)


def _instead(
    kept: dict[str, _Place],
    weak: dict[str, _Place],
    searches: Searches,
    shape: Shape,
    amounts: Amounts,
    giving: Preemption,
) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
    """A place from now on where only promises to tasks behind this one are in the way. They give way.

    So do promises to others for a time after a reservation, if the owner of this task has the reservation.
    """
    weaker = kept
    if shape.owner and weak:
        weaker = kept | {task: place for task, place in weak.items() if _is_afterwards(place, shape.owner)}
    for node in {place.node.name: place.node for place in weaker.values()}.values():
        if node.open_to(shape.sharing.rough) < shape.gpus or not node.admits(shape):
            continue
        there = {task: place for task, place in weaker.items() if place.node is node}
        for place in there.values():
            _leave(place, giving)
        if (gpus := node.fit(shape, amounts, node.now)) is not None:
            for task in there:
                (kept if task in kept else weak).pop(task)
            searches.changed(node)
            searches.forget()  # whoever gave way may have left more capacity than was taken
            return node, gpus
        for task, place in there.items():
            (kept if task in kept else weak)[task] = _enter(place, giving)
    return None


def _is_afterwards(place: _Place, owner: str) -> bool:
    """Whether the promise is to another owner, for the time after a reservation of this owner."""
    return any(
        each.begin <= place.node.now < each.end <= place.load.begin
        and each.lets(owner)
        and not each.lets(place.shape.owner)
        and (place.shape.exclusive or not each.gpus or any(each.covers(gpu.number) for gpu in place.gpus))
        for each in place.node.reservations
    )


def amounts_of(task: Task, lengths: Mapping[str, float] = NOTHING) -> Amounts:
    """The cores, memory and length of a task. The length is its limit, else the estimate."""
    spec, limit = task.spec, task.spec.ends_within
    learned = lengths.get(task.id) if limit is None else None
    return Amounts(spec.cores or 0.0, float(spec.memory or 0), limit or learned or math.inf, learned is None)
