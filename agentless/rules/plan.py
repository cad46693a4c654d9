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

from agentless.model.cluster import Cluster
from agentless.model.sharing import Sharing
from agentless.model.spec import TaskSpec
from agentless.model.task import Placement, Task
from agentless.rules.room import FAR, Load, Room
from agentless.rules.search import Cost, Index, Search
from agentless.rules.seat import Seat
from agentless.rules.shape import Amounts, Shape, shape_of

PROMISES = 100
"""So many of the tasks that wait are promised a place: to look into the future for all of them would take too long."""

STARTS = 500
"""So many tasks are started by one look at most; those behind them are looked at in the next one."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Where a task will start, and when (Unix seconds) at the latest; None: when something ends that has no limit."""

    node: str
    start: float | None
    gpu_uuids: tuple[str, ...] = ()


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
    """Where a task is promised to run, as it is put into the room."""

    room: Room
    shape: Shape
    amounts: Amounts
    seats: Sequence[Seat]
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
) -> Plan:
    """The plan for a queue that is in order, after the plan `before`.

    `policies` by name, under None the one that is used otherwise.
    """
    rooms = [Room(node, order, now) for order, node in enumerate(cluster.nodes.values())]
    kept = _kept({room.name: room for room in rooms}, queue, now, before or Plan())
    indices: dict[tuple[str | None, Sharing], Index] = {}
    searches: dict[Shape, Search] = {}
    begun: dict[str, Placement] = {}
    promised: dict[str, Promise | None] = {}
    given = 0
    for task in queue:
        shape, amounts = shape_of(task.spec), amounts_of(task.spec)
        mine = kept.pop(task.id, None)
        if mine:
            mine.room.take_back(mine.seats, mine.load)
            _changed(indices.values(), mine.room)
        if (search := searches.get(shape)) is None:
            key = shape.policy, shape.sharing.rough
            if key not in indices:
                indices[key] = Index(rooms, policies[shape.policy], shape.sharing.rough)
            search = searches[shape] = Search(shape, indices[key])
        if found := search.now(amounts, mine.room if mine else None) or _instead(
            kept, indices.values(), shape, amounts
        ):
            room, seats = found
            room.start(shape, amounts, seats)
            begun[task.id] = room.placement(shape, seats)
        elif given < promises and (coming := search.later(amounts)):
            moment, room, seats = coming
            room.put(shape, amounts, seats, moment)
            start = None if moment >= FAR else moment
            promised[task.id] = Promise(room.name, start, tuple(seat.uuid for seat in seats))
            given += 1
        else:
            promised[task.id] = None
            continue
        _changed(indices.values(), room)
        if len(begun) == starts:
            break
    return Plan(begun, promised | {task: place.promise for task, place in kept.items()})


def _kept(rooms: Mapping[str, Room], queue: Iterable[Task], now: float, before: Plan) -> dict[str, _Place]:
    """What was promised before, put in again, up to the first task that is new or whose promise cannot be kept.

    Those behind it have less right to their places than it has to one.
    """
    kept: dict[str, _Place] = {}
    for task in queue:
        if task.id not in before.promises:
            break
        if (promise := before.promises[task.id]) is None:
            continue
        shape, amounts = shape_of(task.spec), amounts_of(task.spec)
        room = rooms.get(promise.node)
        seats = [seat for seat in room.seats if seat.uuid in promise.gpu_uuids] if room else []
        begin = FAR if promise.start is None else max(promise.start, now)
        if room is None or len(seats) < shape.gpus or not room.has_room(shape, amounts, seats, begin):
            break
        kept[task.id] = _Place(room, shape, amounts, seats, room.put(shape, amounts, seats, begin), promise)
    return kept


def _instead(
    kept: dict[str, _Place], indices: Iterable[Index], shape: Shape, amounts: Amounts
) -> tuple[Room, list[Seat]] | None:
    """A place from now on where only promises to tasks behind this one are in the way: it has more right to it."""
    for room in {place.room.name: place.room for place in kept.values()}.values():
        if room.open_to(shape.sharing.rough) < shape.gpus or not room.admits(shape):
            continue
        there = {task: place for task, place in kept.items() if place.room is room}
        for place in there.values():
            room.take_back(place.seats, place.load)
        if (seats := room.fit(shape, amounts, room.now)) is not None:
            for task in there:
                del kept[task]
            _changed(indices, room)
            return room, seats
        for task, place in there.items():
            again = room.put(place.shape, place.amounts, place.seats, place.load.begin)
            kept[task] = replace(place, load=again)
    return None


def _changed(indices: Iterable[Index], room: Room) -> None:
    for index in indices:
        index.changed(room)


def amounts_of(spec: TaskSpec) -> Amounts:
    """What a task wants of cores and memory, and for how long."""
    return Amounts(spec.cores or 0.0, float(spec.memory or 0), spec.ends_within or math.inf)
