"""Which of the GPUs of a node a task gets: alike, and near each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

from agentless.model.nodes.gpu import GpuTopology
from agentless.rules.scheduling.gpu_timeline import GpuTimeline
from agentless.rules.scheduling.shape import Shape

TRIED = 120
"""So many sets of GPUs are compared at most, like all of 8 GPUs, or all pairs of 16; else sets are grown from each."""

_Key = TypeVar("_Key", bound=Hashable)


def choose(gpus: list[GpuTimeline], shape: Shape, topology: GpuTopology) -> list[GpuTimeline] | None:
    """As many of these as the shape wants, of the best type there is, all alike if that goes; None when too few.

    Of those that will do the nearest, as far as it is known how they are joined.
    """
    if len(gpus) < shape.gpus:
        return None
    if shape.indices:
        by_index = {gpu.index: gpu for gpu in gpus}
        return [by_index[index] for index in shape.indices] if len(by_index) == shape.gpus else None
    if len(gpus) == shape.gpus:
        return gpus
    if shape.gpu_types:
        worst = sorted([shape.rank(gpu.name) or 0 for gpu in gpus])[shape.gpus - 1]
        gpus = [gpu for gpu in gpus if (shape.rank(gpu.name) or 0) <= worst]
    alike = _groups(gpus, lambda gpu: (gpu.total, gpu.name))
    ranked = _groups(gpus, lambda gpu: (shape.rank(gpu.name) or 0, ""))
    for groups in (alike, ranked):
        if enough := [key for key in groups if len(groups[key]) >= shape.gpus]:
            return _joined(groups[min(enough)], shape, topology)
    return _near(sorted(gpus, key=lambda gpu: shape.rank(gpu.name) or 0)[: shape.gpus], shape)


def _near(gpus: list[GpuTimeline], shape: Shape) -> list[GpuTimeline]:
    """On one NUMA node if that goes, the one with the fewest to spare; else on as few as possible."""
    groups = sorted(
        _groups(gpus, lambda gpu: gpu.numa).values(),
        key=lambda group: (
            group[0].numa != shape.numa,
            len(group) < shape.gpus,
            abs(len(group) - shape.gpus),
            group[0].index,
        ),
    )
    found = [gpu for group in groups for gpu in group][: shape.gpus]
    return sorted(found, key=lambda gpu: gpu.index)


def _joined(gpus: list[GpuTimeline], shape: Shape, topology: GpuTopology) -> list[GpuTimeline]:
    """Those between which the slowest link is the fastest; of equals those that `_near` would take.

    Who shares goes where others share already, and leaves whole GPUs to those who do not.
    """
    if shape.sharing.limit > 1 and len(begun := [gpu for gpu in gpus if gpu.taken]) >= shape.gpus:
        gpus = begun
    near = _near(gpus, shape)
    if len(gpus) == shape.gpus:
        return near
    gpus = sorted(gpus, key=lambda gpu: gpu.index)
    links = tuple([topology.links.get((one.index, other.index), 0) for one, other in combinations(gpus, 2)])
    if len(set(links)) < 2:  # all are as near to each other
        return near
    at = {gpu.index: place for place, gpu in enumerate(gpus)}
    places = _nearest(links, tuple([gpu.numa for gpu in gpus]), shape.numa, tuple([at[s.index] for s in near]))
    return [gpus[place] for place in places]


@lru_cache(maxsize=4096)
def _nearest(
    links: tuple[int, ...], numas: tuple[int | None, ...], numa: int | None, usual: tuple[int, ...]
) -> tuple[int, ...]:
    """The best places for as many GPUs as `usual` has, which is taken if nothing is better; in order.

    `links` are the weights of those of all pairs in order, `numas` the NUMA nodes, `numa` the one that was asked for.
    Remembered, since the same few machines are asked about in every look at the queue.
    """
    everyone, wanted = range(len(numas)), len(usual)
    link = [[0] * len(numas) for _ in everyone]
    for (one, other), weight in zip(combinations(everyone, 2), links, strict=True):
        link[one][other] = link[other][one] = weight
    asked = [numa is not None and numas[place] == numa for place in everyone]

    def speed(places: Sequence[int]) -> tuple[int, int]:
        """What was asked for, and the slowest link: a task is as fast as that."""
        return sum([asked[place] for place in places]), min([link[a][b] for a, b in combinations(places, 2)], default=0)

    def worth(places: tuple[int, ...]) -> tuple[int, ...]:
        """Its CPUs, its other links, and the links that are lost to others."""
        broken = [link[place][other] for place in places for other in everyone if other not in places]
        inside = sum([link[a][b] for a, b in combinations(places, 2)])
        return -len({numas[place] for place in places}), inside, -max(broken), -sum(broken)

    def best(sets: list[tuple[int, ...]]) -> tuple[int, ...]:
        speeds = [speed(places) for places in sets]
        fastest = max(speeds)
        return max([places for places, found in zip(sets, speeds, strict=True) if found == fastest], key=worth)

    def grown(first: int) -> tuple[int, ...]:
        places = [first]
        while len(places) < wanted:
            others = [place for place in everyone if place not in places]
            places.append(max(others, key=lambda other: (*speed([*places, other]), numas[other] == numas[first])))
        return tuple(sorted(places))

    if math.comb(len(numas), wanted) <= TRIED:
        return best([usual, *combinations(everyone, wanted)])
    found = best([usual, *map(grown, everyone)])
    while True:
        others = [place for place in everyone if place not in found]
        better = best([found, *[tuple(sorted({*found, new} - {old})) for old in found for new in others]])
        if better == found:
            return found
        found = better


def _groups(gpus: Iterable[GpuTimeline], key: Callable[[GpuTimeline], _Key]) -> dict[_Key, list[GpuTimeline]]:
    found: dict[_Key, list[GpuTimeline]] = {}
    for gpu in gpus:
        found.setdefault(key(gpu), []).append(gpu)
    return found
