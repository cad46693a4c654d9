"""Looking for a place in a large cluster: the nodes are sorted once, and not looked at anew for each task.

Within one look into the future room becomes less, but for the place that a task itself was promised before. So what did
not fit does not fit later on either, nor does anything that wants more, and it is not tried again.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from agentless.model.scheduling.sharing import Sharing
from agentless.rules.scheduling.gpu_timeline import FAR, GpuTimeline
from agentless.rules.scheduling.node_timeline import Kinds, NodeTimeline
from agentless.rules.scheduling.shape import Amounts, Shape

Cost = Callable[[NodeTimeline, int], tuple[float, ...]]
"""A policy, see `rules/policies`."""

_Worth = tuple[int, int]
"""Of GPUs that a task may get: the rank of the worst of them, and bytes of their memory beyond what it asked for."""

_Key = tuple[int, tuple[float, ...], int]
"""What a place costs: the rank of the worst GPU, what the policy says, the order of the node."""

_Entry = tuple[tuple[float, ...], int, NodeTimeline]
"""The cost of a node, its order, the node."""

Later = tuple[float, int, int]
"""When a node may have room, how many GPUs less than none are open there now, and its order: the first is the best."""


class Index:
    """All nodes by the GPUs that they have, sorted by what a policy says of them and by when they will have room.

    A node is in it under `open`, by how many GPUs of each kind are open, and under `soon`, by the wanted number of
    GPUs: open to tasks that share them on these terms.
    """

    def __init__(self, rooms: Iterable[NodeTimeline], cost: Cost, sharing: Sharing) -> None:
        self.cost = cost
        self.sharing = sharing
        self.rooms: dict[Kinds, list[NodeTimeline]] = {}
        self.names: dict[str, NodeTimeline] = {}
        self.open: dict[Kinds, dict[tuple[int, ...], list[_Entry]]] = {}
        self._soon: dict[tuple[Kinds, int], list[tuple[Later, NodeTimeline]]] = {}
        self._before: dict[str, tuple[list[_Entry], _Entry, list[float]]] = {}
        for room in rooms:
            self.names[room.name] = room
            self.rooms.setdefault(room.kinds, []).append(room)
            self._enter(room)

    def soon(self, kinds: Kinds, gpus: int) -> list[tuple[Later, NodeTimeline]]:
        """The nodes with these GPUs, those first where so many are open soonest."""
        if (kinds, gpus) not in self._soon:
            self._soon[kinds, gpus] = sorted(
                (later(room, room.openings(self.sharing), gpus), room) for room in self.rooms[kinds]
            )
        return self._soon[kinds, gpus]

    def changed(self, room: NodeTimeline) -> None:
        """Sort in a node again that something was put into."""
        entries, entry, openings = self._before[room.name]
        del entries[bisect.bisect_left(entries, entry)]
        for gpus in range(len(openings) + 1):
            if (room.kinds, gpus) in self._soon:
                others = self._soon[room.kinds, gpus]
                del others[bisect.bisect_left(others, (later(room, openings, gpus), room))]
                bisect.insort(others, (later(room, room.openings(self.sharing), gpus), room))
        self._enter(room)

    def _enter(self, room: NodeTimeline) -> None:
        # What is to spare is the same for all nodes with these GPUs, and changes nothing in their order.
        entry = self.cost(room, 0), room.order, room
        entries = self.open.setdefault(room.kinds, {}).setdefault(room.open_of(self.sharing), [])
        bisect.insort(entries, entry)
        self._before[room.name] = entries, entry, room.openings(self.sharing)


def later(room: NodeTimeline, openings: Sequence[float], gpus: int) -> Later:
    """When so many GPUs may be open there at the earliest."""
    moment = openings[gpus - 1] if gpus else room.now
    return moment, -bisect.bisect_right(openings, room.now), room.order


class Search:
    """Where tasks of one shape may go."""

    def __init__(self, shape: Shape, index: Index) -> None:
        self._shape = shape
        self._index = index
        self._failed: list[Amounts] = []
        self._kinds = {kinds: worth for kinds in index.rooms if (worth := _worth(kinds, shape))}
        self._hopes: dict[tuple[Kinds, tuple[int, ...]], _Worth | None] = {}

    def now(self, amounts: Amounts, freed: NodeTimeline | None = None) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
        """The cheapest place from now on. `freed` is where room has become more since the search before."""
        if any(failed.within(amounts) for failed in self._failed):
            seats = freed.fit(self._shape, amounts, freed.now) if freed else None
            return (freed, seats) if freed and seats is not None else None
        best: tuple[_Key, NodeTimeline, list[GpuTimeline]] | None = None
        for *hoped, room in self._cheapest():
            if best and best[0] <= tuple(hoped):
                break
            if amounts.cores <= room.free_cores + 1e-9 and amounts.memory <= room.free_memory:
                seats = room.fit(self._shape, amounts, room.now)
                if seats is not None:
                    found = self._key(self._worth_of(seats), room)
                    if found <= tuple(hoped):
                        return room, seats
                    # Not all that are open are so for long enough, or have the memory free.
                    best = min(best, (found, room, seats)) if best else (found, room, seats)
        if best:
            return best[1:]
        self._failed = [failed for failed in self._failed if not amounts.within(failed)] + [amounts]
        return None

    def forget(self) -> None:
        """Capacity has become more: what did not fit may fit now."""
        self._failed.clear()

    def later(self, amounts: Amounts, since: float = -math.inf) -> tuple[float, NodeTimeline, list[GpuTimeline]] | None:
        """The first place, from `since` on, that will be free so long; of several the one where the least is missing.

        The least is the fewest GPUs, as of now. Of several that are there at `since` it is the first to open.
        """
        best: tuple[Later, NodeTimeline, list[GpuTimeline]] | None = None
        for soonest, room in self._soonest():
            if best and (soonest > best[0] or best[0][0] <= since):
                break
            if room.closed or (moment := max(since, room.soonest(self._shape, amounts))) > FAR:
                continue
            if not best or (moment, *soonest[1:]) < best[0]:
                coming = room.earliest(self._shape, amounts, moment)
                if coming and (not best or (coming[0], *soonest[1:]) < best[0]):
                    best = (coming[0], *soonest[1:]), room, coming[1]
        return best and (best[0][0], best[1], best[2])

    # ------------------------------------------------------------------ inside

    def _named(self) -> Sequence[NodeTimeline]:
        """The nodes that are named and will do."""
        rooms = [self._index.names[name] for name in self._shape.nodes if name in self._index.names]
        return [room for room in rooms if not room.closed and room.kinds in self._kinds and room.admits(self._shape)]

    def _soonest(self) -> Iterable[tuple[Later, NodeTimeline]]:
        """Nodes that may have room at some time, by when that is at the earliest."""
        gpus = self._shape.gpus
        if self._shape.nodes:
            sharing = self._index.sharing
            return sorted((later(room, room.openings(sharing), gpus), room) for room in self._named())
        found = heapq.merge(*(self._index.soon(kinds, gpus) for kinds in self._kinds))
        return (entry for entry in found if entry[1].admits(self._shape))

    def _cheapest(self) -> Iterable[tuple[int, tuple[float, ...], int, NodeTimeline]]:
        """The nodes with so many GPUs open and what a place there may cost: the best GPUs first, then the cheapest."""
        if self._shape.nodes:
            open_ = [(room, self._hope(room.kinds, room.open_of(self._index.sharing))) for room in self._named()]
            return iter(sorted((*self._key(worth, room), room) for room, worth in open_ if worth))
        streams = [
            self._entries(entries, worth)
            for kinds in self._kinds
            for counts, entries in self._index.open[kinds].items()
            if entries and (worth := self._hope(kinds, counts))
        ]
        return heapq.merge(*streams)

    def _entries(
        self, entries: Iterable[_Entry], worth: _Worth
    ) -> Iterator[tuple[int, tuple[float, ...], int, NodeTimeline]]:
        for _, _, room in entries:
            if not room.closed and room.admits(self._shape):
                yield (*self._key(worth, room), room)

    def _key(self, worth: _Worth, room: NodeTimeline) -> _Key:
        rank, spare = worth
        return rank, self._index.cost(room, spare), room.order

    def _hope(self, kinds: Kinds, counts: tuple[int, ...]) -> _Worth | None:
        """What it would get of so many GPUs of these kinds; None when they are too few."""
        if sum(counts) < self._shape.gpus:
            return None
        if len(kinds) < 2:
            return self._kinds[kinds]
        if (kinds, counts) not in self._hopes:
            open_ = [(name, total, count) for (name, total, _), count in zip(kinds, counts, strict=True)]
            self._hopes[kinds, counts] = _worth(open_, self._shape)
        return self._hopes[kinds, counts]

    def _worth_of(self, seats: Sequence[GpuTimeline]) -> _Worth:
        rank = max([self._shape.rank(seat.name) or 0 for seat in seats], default=0)
        return rank, sum([seat.total - self._shape.gpu_memory for seat in seats])


def _worth(kinds: Iterable[tuple[str, int, int]], shape: Shape) -> _Worth | None:
    """What `choose` would take of so many GPUs of these kinds, all alike if that goes; None when too few will do."""
    fit = [
        (rank, total, count)
        for name, total, count in kinds
        if total >= shape.gpu_memory and (rank := shape.rank(name)) is not None
    ]
    fit.sort()
    worst, memory, missing = 0, 0, shape.gpus
    for rank, total, count in fit:
        if missing > 0:
            worst, memory, missing = rank, memory + min(missing, count) * total, missing - count
        if rank == worst and count >= shape.gpus:
            memory = shape.gpus * total
            break
    return None if missing > 0 else (worst, memory - shape.gpu_memory * shape.gpus)
