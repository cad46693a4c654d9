"""Which GPUs of a node a task gets: of one vendor, of one model, and near each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

from agentless.model.nodes.device import parts_of
from agentless.model.nodes.gpu import GpuTopology
from agentless.rules.scheduling.shape import Shape
from agentless.rules.scheduling.timeline.gpu import GpuTimeline

TRIED = 120
"""The most sets of GPUs that are compared: all sets of 8 GPUs, or all pairs of 16. Above that, sets are grown."""

_Key = TypeVar("_Key", bound=Hashable)


def choose(gpus: list[GpuTimeline], shape: Shape, topology: GpuTopology) -> list[GpuTimeline] | None:
    """As many GPUs as the shape wants, of the best type, all of one model if possible. None if there are too few.

    They are of one vendor: a program computes with the libraries of one.

    Of several sets, the one with the fastest known links is chosen.
    """
    if len(gpus) < shape.gpus:
        return None
    if shape.gpus > 1 and len(of_one := _groups(gpus, lambda gpu: gpu.vendor)) > 1:
        found = [] if shape.indices else [choose(group, shape, topology) for group in of_one.values()]
        return min(filter(None, found), key=lambda group: max(shape.rank(gpu.name) or 0 for gpu in group), default=None)
    if shape.indices:
        by_number = {gpu.number: gpu for gpu in gpus}
        return [by_number[number] for number in shape.indices] if len(by_number) == shape.gpus else None
    if len(gpus) == shape.gpus:
        return gpus
    if shape.gpu_types or shape.slices:
        worst = sorted([_rank(gpu, shape) for gpu in gpus])[shape.gpus - 1]
        gpus = [gpu for gpu in gpus if _rank(gpu, shape) <= worst]
    alike = _groups(gpus, lambda gpu: (gpu.total, gpu.name))
    ranked = _groups(gpus, lambda gpu: (_rank(gpu, shape), ""))
    for groups in (alike, ranked):
        if enough := [key for key in groups if len(groups[key]) >= shape.gpus]:
            return _joined(groups[min(enough)], shape, topology)
    return _near(sorted(gpus, key=lambda gpu: _rank(gpu, shape))[: shape.gpus], shape)


def _rank(gpu: GpuTimeline, shape: Shape) -> int:
    return shape.rank(gpu.name, part=gpu.parent is not None) or 0


def _near(gpus: list[GpuTimeline], shape: Shape) -> list[GpuTimeline]:
    """GPUs of one NUMA node if possible, the one with the fewest left over; else of as few as possible."""
    groups = sorted(
        _groups(gpus, lambda gpu: gpu.numa).values(),
        key=lambda group: (
            group[0].numa != shape.numa,
            len(group) < shape.gpus,
            abs(len(group) - shape.gpus),
            _place(group[0]),
        ),
    )
    found = [gpu for group in groups for gpu in group][: shape.gpus]
    return sorted(found, key=_place)


def _joined(gpus: list[GpuTimeline], shape: Shape, topology: GpuTopology) -> list[GpuTimeline]:
    """The set whose slowest link is the fastest; of equal sets the one that `_near` takes.

    A task that shares prefers GPUs that are shared already, which leaves whole GPUs to others.
    """
    if shape.sharing.limit > 1 and len(begun := [gpu for gpu in gpus if gpu.taken]) >= shape.gpus:
        gpus = begun
    near = _near(gpus, shape)
    if len(gpus) == shape.gpus:
        return near
    gpus = sorted(gpus, key=_place)
    links = tuple([topology.links.get((one.index, other.index), 0) for one, other in combinations(gpus, 2)])
    if len(set(links)) < 2:  # all are as near to each other
        return near
    at = {gpu.uuid: place for place, gpu in enumerate(gpus)}
    places = _nearest(links, tuple([gpu.numa for gpu in gpus]), shape.numa, tuple([at[s.uuid] for s in near]))
    return [gpus[place] for place in places]


@lru_cache(maxsize=4096)
def _nearest(
    links: tuple[int, ...], numas: tuple[int | None, ...], numa: int | None, usual: tuple[int, ...]
) -> tuple[int, ...]:
    """The best set of as many GPUs as `usual` has, by position; `usual` if no other is better.

    `links` are the weights of all pairs in order, `numas` the NUMA nodes, `numa` the requested one. Results are cached:
    each planning pass asks about the same few machines.
    """
    everyone, wanted = range(len(numas)), len(usual)
    link = [[0] * len(numas) for _ in everyone]
    for (one, other), weight in zip(combinations(everyone, 2), links, strict=True):
        link[one][other] = link[other][one] = weight
    asked = [numa is not None and numas[place] == numa for place in everyone]

    def speed(places: Sequence[int]) -> tuple[int, int]:
        """GPUs on the requested NUMA node, then the slowest link, which limits the speed of a task."""
        return sum([asked[place] for place in places]), min([link[a][b] for a, b in combinations(places, 2)], default=0)

    def worth(places: tuple[int, ...]) -> tuple[int, ...]:
        """Fewer NUMA nodes, then the other links within the set, then the links that other tasks lose."""
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


def _place(gpu: GpuTimeline) -> tuple[int, int]:
    return parts_of(gpu.number)


def _groups(gpus: Iterable[GpuTimeline], key: Callable[[GpuTimeline], _Key]) -> dict[_Key, list[GpuTimeline]]:
    found: dict[_Key, list[GpuTimeline]] = {}
    for gpu in gpus:
        found.setdefault(key(gpu), []).append(gpu)
    return found
