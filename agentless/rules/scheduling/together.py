"""Places for the members of a gang: all at one time, each on a node of its own, near each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from agentless.rules.scheduling.search import Later, Searches
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline
from agentless.rules.scheduling.timeline.node import NodeTimeline

Want = tuple[Shape, Amounts]
"""What one member needs."""

Spot = tuple[NodeTimeline, list[GpuTimeline]]

_Entry = tuple[float, Later, bool, int, int, NodeTimeline, list[GpuTimeline]]
"""When a node may have capacity, in which order it is asked, whether that is no more than a bound, the kind of member,
and the order of the node, so that no two are equal."""


class Together:
    """Finds places for gangs in one planning pass."""

    def __init__(self, searches: Searches, nodes: Sequence[NodeTimeline]) -> None:
        self._searches = searches
        self._levels = max([len(fabric(node)) for node in nodes], default=0)

    def now(self, wants: Sequence[Want], *, anew: bool) -> list[Spot] | None:
        """The places from now on, by rank. `anew`: there is more capacity than when these wants were last tried."""
        failed = self._searches.failed_gangs
        if (key := tuple(wants)) in failed and not anew:
            return None
        kinds, found = list(dict.fromkeys(wants)), list[dict[str, Spot]]()
        for shape, amounts in kinds:
            places = self._searches.of(shape).each_now(amounts)
            if len(kinds) == 1 and not self._levels:
                places = islice(places, len(wants))
            found.append({node.name: (node, gpus) for node, gpus in places})
        chosen = self._chosen(wants, kinds, found)
        if chosen is None:
            failed.add(key)
        return chosen

    def may_be_open(self, wants: Sequence[Want]) -> bool:
        """Whether as many nodes as it takes have enough GPUs open now, if only for a moment."""
        names = set[str]()
        for shape, _ in dict.fromkeys(wants):
            for node in self._searches.of(shape).open_nodes():
                names.add(node.name)
                if len(names) >= len(wants):
                    return True
        return False

    def later(self, wants: Sequence[Want]) -> tuple[float, list[Spot]] | None:
        """The first time at which there are places for all that are free long enough, and these places."""
        kinds = list(dict.fromkeys(wants))
        ready: list[dict[str, Spot]] = [{} for _ in kinds]
        at = 0.0
        for moment, kind, node, gpus in self._openings(kinds, ready):
            if moment > at:
                if at and (chosen := self._chosen(wants, kinds, ready)):
                    return at, chosen
                at = moment
            ready[kind][node.name] = node, gpus
        chosen = self._chosen(wants, kinds, ready)
        return (at, chosen) if chosen else None

    # ------------------------------------------------------------------ inside

    def _openings(
        self, kinds: Sequence[Want], ready: list[dict[str, Spot]]
    ) -> Iterator[tuple[float, int, NodeTimeline, list[GpuTimeline]]]:
        """Each node when it fits, in the order of time. Those in `ready` are asked again at each later time."""
        streams = [self._bounds(kind, shape) for kind, (shape, _) in enumerate(kinds)]
        coming, heap, at = heapq.merge(*streams, key=_order), list[_Entry](), 0.0
        ahead = next(coming, None)
        while True:
            while ahead and (not heap or ahead[0] <= heap[0][0]):
                heapq.heappush(heap, ahead)
                ahead = next(coming, None)
            if not heap:
                return
            moment, order, is_bound, kind, _, node, gpus = heapq.heappop(heap)
            shape, amounts = kinds[kind]
            if is_bound:
                bound = max(moment, at, node.now, node.soonest(shape, amounts))
                found = node.earliest(shape, amounts, bound) if bound <= FAR else None
                if found and found[0] <= FAR:
                    heapq.heappush(heap, (found[0], order, False, kind, node.order, node, found[1]))
                continue
            if moment > at:
                yield moment, kind, node, gpus  # whoever listens decides with what was ready before
                for other, spots in enumerate(ready):
                    for before, _ in list(spots.values()):
                        if (other, before) != (kind, node):
                            del spots[before.name]
                            heapq.heappush(heap, (moment, order, True, other, before.order, before, []))
                at = moment
            else:
                yield moment, kind, node, gpus

    def _bounds(self, kind: int, shape: Shape) -> Iterator[_Entry]:
        """The nodes for members of a kind, by when they may have capacity."""
        return (
            (order[0], order, True, kind, node.order, node, []) for order, node in self._searches.of(shape).soonest()
        )

    def _chosen(
        self, wants: Sequence[Want], kinds: Sequence[Want], found: Sequence[Mapping[str, Spot]]
    ) -> list[Spot] | None:
        """A place for each member, by rank, out of those for each kind; None if there are too few."""
        if len(kinds) == 1:
            if len(found[0]) < len(wants):
                return None
            near = _near(list(found[0].values()), len(wants), self._levels)
            # Neighbours in the fabric are neighbours by rank.
            return sorted(near, key=lambda spot: (fabric(spot[0]), spot[0].order))
        options = [found[kinds.index(want)] for want in wants]
        names = _matched([list(each) for each in options])
        return None if names is None else [options[rank][name] for rank, name in enumerate(names)]


def _order(entry: _Entry) -> Later:
    return entry[1]


def _near(spots: list[Spot], wanted: int, levels: int) -> list[Spot]:
    """So many of these places, the cheapest first, in the smallest part of the fabric that has enough of them."""
    parts = dict[tuple[str, ...], list[Spot]]()
    for level in range(levels, 0, -1):
        parts = {}
        for spot in spots:
            path = fabric(spot[0])[:level]
            # Where a node is joined to others is unknown beyond its own path.
            parts.setdefault(path if len(path) == level else ("", spot[0].name), []).append(spot)
        if enough := [part for part in parts.values() if len(part) >= wanted]:
            return min(enough, key=len)[:wanted]
    # No part has all of them: as few parts as possible.
    ordered = sorted(parts.values(), key=len, reverse=True)
    return [spot for part in ordered for spot in part][:wanted] if levels else spots[:wanted]


def fabric(node: NodeTimeline) -> tuple[str, ...]:
    """The path of a node in the fabric, from the outside in; empty if unknown."""
    return tuple(node.node.config.fabric.split("/")) if node.node.config.fabric else ()


def _matched(options: Sequence[Sequence[str]]) -> list[str] | None:
    """One of the options of each, all different; None if that is impossible."""
    holder = dict[str, int]()

    def gets(one: int, tried: set[str]) -> bool:
        for name in options[one]:
            if name not in tried:
                tried.add(name)
                if name not in holder or gets(holder[name], tried):
                    holder[name] = one
                    return True
        return False

    if not all(gets(one, set()) for one in range(len(options))):
        return None
    names = {one: name for name, one in holder.items()}
    return [names[one] for one in range(len(options))]
