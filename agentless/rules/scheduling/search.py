"""Looking for a place in a large cluster: the nodes are sorted once, and not looked at anew for each task.

Within one look into the future capacity becomes less, but for the place that a task itself had before. So what did
not fit does not fit later on either, nor does anything that wants more, and it is not tried again.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
"""When a node may have capacity, minus the GPUs open there now, and its order: the first is the best."""


class Index:
    """All nodes by the GPUs that they have, sorted by what a policy says of them and by when they will have capacity.

    A node is in it under `open`, by how many GPUs of each kind are open, and under `soon`, by the wanted number of
    GPUs: open to tasks that share them on these terms.
    """

    def __init__(self, nodes: Iterable[NodeTimeline], cost: Cost, sharing: Sharing) -> None:
        self.cost = cost
        self.sharing = sharing
        self.nodes: dict[Kinds, list[NodeTimeline]] = {}
        self.names: dict[str, NodeTimeline] = {}
        self.open: dict[Kinds, dict[tuple[int, ...], list[_Entry]]] = {}
        self._soon: dict[tuple[Kinds, int], list[tuple[Later, NodeTimeline]]] = {}
        self._before: dict[str, tuple[list[_Entry], _Entry, list[float]]] = {}
        for node in nodes:
            self.names[node.name] = node
            self.nodes.setdefault(node.kinds, []).append(node)
            self._enter(node)

    def soon(self, kinds: Kinds, gpus: int) -> list[tuple[Later, NodeTimeline]]:
        """The nodes with these GPUs, those first where so many are open soonest."""
        if (kinds, gpus) not in self._soon:
            self._soon[kinds, gpus] = sorted(
                (later(node, node.openings(self.sharing), gpus), node) for node in self.nodes[kinds]
            )
        return self._soon[kinds, gpus]

    def changed(self, node: NodeTimeline) -> None:
        """Sort in a node again that something was put into."""
        entries, entry, openings = self._before[node.name]
        del entries[bisect.bisect_left(entries, entry)]
        for gpus in range(len(openings) + 1):
            if (node.kinds, gpus) in self._soon:
                others = self._soon[node.kinds, gpus]
                del others[bisect.bisect_left(others, (later(node, openings, gpus), node))]
                bisect.insort(others, (later(node, node.openings(self.sharing), gpus), node))
        self._enter(node)

    def _enter(self, node: NodeTimeline) -> None:
        # What is to spare is the same for all nodes with these GPUs, and changes nothing in their order.
        entry = self.cost(node, 0), node.order, node
        entries = self.open.setdefault(node.kinds, {}).setdefault(node.open_of(self.sharing), [])
        bisect.insort(entries, entry)
        self._before[node.name] = entries, entry, node.openings(self.sharing)


def later(node: NodeTimeline, openings: Sequence[float], gpus: int) -> Later:
    """When so many GPUs may be open there at the earliest."""
    moment = openings[gpus - 1] if gpus else node.now
    return moment, -bisect.bisect_right(openings, node.now), node.order


class Search:
    """Where tasks of one shape may go."""

    def __init__(self, shape: Shape, index: Index) -> None:
        self._shape = shape
        self._index = index
        self._failed: list[Amounts] = []
        self._kinds = {kinds: worth for kinds in index.nodes if (worth := _worth(kinds, shape))}
        self._hopes: dict[tuple[Kinds, tuple[int, ...]], _Worth | None] = {}

    def now(self, amounts: Amounts, freed: NodeTimeline | None = None) -> tuple[NodeTimeline, list[GpuTimeline]] | None:
        """The cheapest place from now on. `freed` is where capacity has become more since the search before."""
        if any(failed.within(amounts) for failed in self._failed):
            gpus = freed.fit(self._shape, amounts, freed.now) if freed else None
            return (freed, gpus) if freed and gpus is not None else None
        best: tuple[_Key, NodeTimeline, list[GpuTimeline]] | None = None
        for *hoped, node in self._cheapest():
            if best and best[0] <= tuple(hoped):
                break
            if amounts.cores <= node.free_cores + 1e-9 and amounts.memory <= node.free_memory:
                gpus = node.fit(self._shape, amounts, node.now)
                if gpus is not None:
                    found = self._key(self._worth_of(gpus), node)
                    if found <= tuple(hoped):
                        return node, gpus
                    # Not all that are open are so for long enough, or have the memory free.
                    best = min(best, (found, node, gpus)) if best else (found, node, gpus)
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
        """The nodes that are named and will do."""
        nodes = [self._index.names[name] for name in self._shape.nodes if name in self._index.names]
        return [node for node in nodes if not node.closed and node.kinds in self._kinds and node.admits(self._shape)]

    def _soonest(self) -> Iterable[tuple[Later, NodeTimeline]]:
        """Nodes that may have capacity at some time, by when that is at the earliest."""
        gpus = self._shape.gpus
        if self._shape.nodes:
            sharing = self._index.sharing
            return sorted((later(node, node.openings(sharing), gpus), node) for node in self._named())
        found = heapq.merge(*(self._index.soon(kinds, gpus) for kinds in self._kinds))
        return (entry for entry in found if entry[1].admits(self._shape))

    def _cheapest(self) -> Iterable[tuple[int, tuple[float, ...], int, NodeTimeline]]:
        """The nodes with so many GPUs open and what a place there may cost: the best GPUs first, then the cheapest."""
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
        """What it would get of so many GPUs of these kinds; None when they are too few."""
        if sum(counts) < self._shape.gpus:
            return None
        if len(kinds) < 2:
            return self._kinds[kinds]
        if (kinds, counts) not in self._hopes:
            open_ = [(name, total, count) for (name, total, _), count in zip(kinds, counts, strict=True)]
            self._hopes[kinds, counts] = _worth(open_, self._shape)
        return self._hopes[kinds, counts]

    def _worth_of(self, gpus: Sequence[GpuTimeline]) -> _Worth:
        rank = max([self._shape.rank(gpu.name) or 0 for gpu in gpus], default=0)
        return rank, sum([gpu.total - self._shape.gpu_memory for gpu in gpus])


class Searches:
    """The searches of one look into the future, one per shape; they share what is sorted."""

    def __init__(self, nodes: Sequence[NodeTimeline], policies: Mapping[str | None, Cost]) -> None:
        self._nodes = nodes
        self._policies = policies
        self._indices: dict[tuple[str | None, Sharing], Index] = {}
        self._searches: dict[Shape, Search] = {}

    def of(self, shape: Shape) -> Search:
        """The search for tasks of this shape."""
        if (search := self._searches.get(shape)) is None:
            key = shape.policy, shape.sharing.rough
            if key not in self._indices:
                self._indices[key] = Index(self._nodes, self._policies[shape.policy], shape.sharing.rough)
            search = self._searches[shape] = Search(shape, self._indices[key])
        return search

    def changed(self, node: NodeTimeline) -> None:
        """Something was put into a node or taken out of it."""
        for index in self._indices.values():
            index.changed(node)

    def forget(self) -> None:
        """Capacity has become more, for all of them."""
        for search in self._searches.values():
            search.forget()


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
