"""Finds places in a large cluster. Nodes are sorted once, not for each task.

Within one planning pass, capacity only shrinks, except for the promised place of the task itself. So a request that did
not fit does not fit later in the pass, nor does a larger one, and neither is tried again.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from agentless.model.scheduling.sharing import Sharing
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline
from agentless.rules.scheduling.timeline.node import Kinds, NodeTimeline

Cost = Callable[[NodeTimeline, int], tuple[float, ...]]
"""A policy, see `rules/scheduling/policies`."""

_Worth = tuple[int, int]
"""Of the GPUs for a task: the rank of the worst one, and the bytes of memory beyond the request."""

_Key = tuple[int, tuple[float, ...], int]
"""The cost of a place: the rank of the worst GPU, the cost by the policy, the order of the node."""

_Entry = tuple[tuple[float, ...], int, NodeTimeline]
"""A node with its cost and its order, for sorting."""

Later = tuple[float, int, int]
"""The first time a node may have capacity, minus the number of GPUs open there now, and its order. Lowest is best."""


class Index:
    """All nodes by their GPUs, sorted by the cost of a policy and by when they may have capacity.

    `open` has the nodes by the number of open GPUs of each kind, `soon` by the wanted number of GPUs. Both count GPUs
    that are open to tasks with these terms of sharing.
    """

    def __init__(self, nodes: Iterable[NodeTimeline], cost: Cost, sharing: Sharing) -> None:
        self.cost = cost
        self.sharing = sharing
        self.nodes: dict[Kinds, list[NodeTimeline]] = {}
        self.names: dict[str, NodeTimeline] = {}
        self.open: dict[Kinds, dict[tuple[int, ...], list[_Entry]]] = {}
        self._soon: dict[tuple[Kinds, int], list[tuple[Later, NodeTimeline]]] = {}
        self._before: dict[str, tuple[list[_Entry], _Entry, list[float]]] = {}
        self._most_open: int | None = None
        for node in nodes:
            self.names[node.name] = node
            self.nodes.setdefault(node.kinds, []).append(node)
            self._enter(node)

    def soon(self, kinds: Kinds, gpus: int) -> list[tuple[Later, NodeTimeline]]:
        """The nodes with these GPUs, sorted by when so many may be open."""
        if (kinds, gpus) not in self._soon:
            self._soon[kinds, gpus] = sorted(
                (later(node, node.openings(self.sharing), gpus), node) for node in self.nodes[kinds]
            )
        return self._soon[kinds, gpus]

    @property
    def most_open(self) -> int:
        """The most GPUs that are open on one node."""
        if self._most_open is None:
            by_counts = [item for nodes in self.open.values() for item in nodes.items()]
            self._most_open = max([sum(counts) for counts, entries in by_counts if entries], default=0)
        return self._most_open

    def changed(self, node: NodeTimeline) -> None:
        """Sort a node again after its timeline has changed."""
        self._most_open = None
        entries, entry, openings = self._before[node.name]
        del entries[bisect.bisect_left(entries, entry)]
        for gpus in range(len(openings) + 1):
            if (node.kinds, gpus) in self._soon:
                others = self._soon[node.kinds, gpus]
                del others[bisect.bisect_left(others, (later(node, openings, gpus), node))]
                bisect.insort(others, (later(node, node.openings(self.sharing), gpus), node))
        self._enter(node)

    def _enter(self, node: NodeTimeline) -> None:
        # The spare memory is equal for all nodes with these GPUs, so it does not change their order.
        entry = self.cost(node, 0), node.order, node
        entries = self.open.setdefault(node.kinds, {}).setdefault(node.open_of(self.sharing), [])
        bisect.insort(entries, entry)
        self._before[node.name] = entries, entry, node.openings(self.sharing)


def later(node: NodeTimeline, openings: Sequence[float], gpus: int) -> Later:
    """The sort key of a node by when so many GPUs may be open."""
    moment = openings[gpus - 1] if gpus else node.now
    return moment, -bisect.bisect_right(openings, node.now), node.order


class Search:
    """Finds places for tasks of one shape."""

    def __init__(self, shape: Shape, index: Index) -> None:
        self._shape = shape
        self._index = index
        self._failed: list[Amounts] = []
        self._hopes: dict[tuple[Kinds, tuple[int, ...]], _Worth | None] = {}

    @cached_property
    def _kinds(self) -> Mapping[Kinds, _Worth]:
        """The kinds of nodes with enough such GPUs."""
        return {kinds: worth for kinds in self._index.nodes if (worth := _worth(kinds, self._shape))}

    def now(self, amounts: Amounts, freed: NodeTimeline | None = None) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
        """The cheapest place from now on. `freed` is a node that got more capacity since the last search."""
        if any(failed.within(amounts) for failed in self._failed):
            gpus = freed.fit(self._shape, amounts, freed.now) if freed else None
            return (freed, gpus) if freed and gpus is not None else None
        best: tuple[_Key, NodeTimeline, list[GpuTimeline]] | None = None
        for *hoped, node in self._cheapest():
            if best and best[0] <= tuple(hoped):
                break
            if node.has_free(amounts):
                gpus = node.fit(self._shape, amounts, node.now)
                if gpus is not None:
                    found = self._key(self._worth_of(gpus), node)
                    if found <= tuple(hoped):
                        return node, gpus
                    # Some open GPUs are not open long enough, or lack free memory.
                    best = min(best, (found, node, gpus)) if best else (found, node, gpus)
        if best:
            return best[1:]
        self._failed = [failed for failed in self._failed if not amounts.within(failed)] + [amounts]
        return None

    def each_now(self, amounts: Amounts) -> Iterator[tuple[NodeTimeline, list[GpuTimeline]]]:
        """All places from now on, the cheapest about first."""
        for node in list(self.open_nodes()):
            if node.has_free(amounts):
                gpus = node.fit(self._shape, amounts, node.now)
                if gpus is not None:
                    yield node, gpus

    def open_nodes(self) -> Iterator[NodeTimeline]:
        """The nodes with enough open GPUs, the cheapest first."""
        return (node for *_, node in self._cheapest())

    def soonest(self) -> Iterator[tuple[Later, NodeTimeline]]:
        """The nodes that may have capacity at some time, the earliest first."""
        return ((soonest, node) for soonest, node in self._soonest() if not node.closed)

    def forget(self) -> None:
        """Forget failed requests, after capacity has grown."""
        self._failed.clear()

    def later(self, amounts: Amounts, since: float = -math.inf) -> tuple[float, NodeTimeline, list[GpuTimeline]] | None:
        """The first place, from `since` on, that will be free long enough.

        Of places at the same time, the one that lacks the fewest GPUs now is taken. Of several that are free at
        `since`, the first to open is taken.
        """
        best: tuple[Later, NodeTimeline, list[GpuTimeline]] | None = None
        for soonest, node in self._soonest():
            if best and (soonest > best[0] or best[0][0] <= since):
                break
            if node.closed or (moment := max(since, node.soonest(self._shape, amounts))) > FAR:
                continue
            if not best or (moment, *soonest[1:]) < best[0]:
                coming = node.earliest(self._shape, amounts, moment)
                if coming and (not best or (coming[0], *soonest[1:]) < best[0]):
                    best = (coming[0], *soonest[1:]), node, coming[1]
        return best and (best[0][0], best[1], best[2])

    # ------------------------------------------------------------------ inside

    def _named(self) -> Sequence[NodeTimeline]:
        """The requested nodes that match."""
        nodes = [self._index.names[name] for name in self._shape.nodes if name in self._index.names]
        return [node for node in nodes if not node.closed and node.kinds in self._kinds and node.admits(self._shape)]

    def _soonest(self) -> Iterable[tuple[Later, NodeTimeline]]:
        """Nodes that may have capacity at some time, the earliest first."""
        gpus = self._shape.gpus
        if self._shape.nodes:
            sharing = self._index.sharing
            return sorted((later(node, node.openings(sharing), gpus), node) for node in self._named())
        found = heapq.merge(*(self._index.soon(kinds, gpus) for kinds in self._kinds))
        return (entry for entry in found if entry[1].admits(self._shape))

    def _cheapest(self) -> Iterable[tuple[int, tuple[float, ...], int, NodeTimeline]]:
        """Nodes with enough open GPUs and the lowest possible cost of a place there: best GPUs first, then cheapest."""
        if self._shape.gpus > self._index.most_open:
            return ()
        if self._shape.nodes:
            open_ = [(node, self._hope(node.kinds, node.open_of(self._index.sharing))) for node in self._named()]
            return iter(sorted((*self._key(worth, node), node) for node, worth in open_ if worth))
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
        for _, _, node in entries:
            if not node.closed and node.admits(self._shape):
                yield (*self._key(worth, node), node)

    def _key(self, worth: _Worth, node: NodeTimeline) -> _Key:
        rank, spare = worth
        return rank, self._index.cost(node, spare), node.order

    def _hope(self, kinds: Kinds, counts: tuple[int, ...]) -> _Worth | None:
        """The GPUs that the shape would get of these counts by kind. None if there are too few."""
        if sum(counts) < self._shape.gpus:
            return None
        if len(kinds) < 2:
            return self._kinds[kinds]
        if (kinds, counts) not in self._hopes:
            open_ = [(*kind[:3], count) for kind, count in zip(kinds, counts, strict=True)]
            self._hopes[kinds, counts] = _worth(open_, self._shape)
        return self._hopes[kinds, counts]

    def _worth_of(self, gpus: Sequence[GpuTimeline]) -> _Worth:
        rank = max([self._shape.rank(gpu.name, part=gpu.parent is not None) or 0 for gpu in gpus], default=0)
        return rank, sum([gpu.total - self._shape.gpu_memory for gpu in gpus])


class Searches:
    """The searches of one look into the future, one per shape; they share what is sorted.

    `failed_gangs` are what gangs asked for in vain.
    """

    def __init__(self, nodes: Sequence[NodeTimeline], policies: Mapping[str | None, Cost]) -> None:
        self._nodes = nodes
        self._policies = policies
        self._indices: dict[tuple[str | None, Sharing], Index] = {}
        self._searches: dict[Shape, Search] = {}
        self.failed_gangs = set[tuple[tuple[Shape, Amounts], ...]]()

    def of(self, shape: Shape) -> Search:
        """The search for tasks of this shape."""
        if (search := self._searches.get(shape)) is None:
            sharing = shape.sharing.rough
            if (index := self._indices.get((shape.policy, sharing))) is None:
                index = Index(self._nodes, self._policies[shape.policy], sharing)
                self._indices[shape.policy, sharing] = index
            search = self._searches[shape] = Search(shape, index)
        return search

    def changed(self, node: NodeTimeline) -> None:
        """Something was put into a node or taken out of it."""
        for index in self._indices.values():
            index.changed(node)

    def forget(self) -> None:
        """Capacity has become more, for all of them."""
        self.failed_gangs.clear()
        for search in self._searches.values():
            search.forget()


def _worth(kinds: Iterable[tuple[str, int, bool, int]], shape: Shape) -> _Worth | None:
    """The result of `choose` for these counts by kind, of one model if possible. None if too few match."""
    fit = [
        (rank, total, count)
        for name, total, part, count in kinds
        if total >= shape.gpu_memory and (rank := shape.rank(name, part=part)) is not None
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
