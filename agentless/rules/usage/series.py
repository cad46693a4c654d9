"""Readings of a GPU or a node over time, at decreasing resolution.

A point has, for each metric, the number of readings in its time, their sum and their maximum. So points can be merged
without loss: the mean over a longer time is the mean of all its readings, and a time without readings stays a gap.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.host_load import HostLoad

POINTS = 60
"""Points in a block. A block is stored as one row."""
_MOST = 2**28
"""The largest valid reading, as it is stored. A driver may print anything."""


class Kind(NamedTuple):
    """What is recorded of a GPU or a node: the names of its readings, and the factors of their stored values.

    A reading is shown until the next one, for at most `hold` seconds.
    """

    metrics: tuple[str, ...]
    scales: tuple[float, ...]
    hold: float


GPU = Kind(("utilization_pct", "memory_used_mib", "temperature_c", "power_w"), (1, 1, 1, 10), 5.0)
"""By the names of `GpuReading`. Power is stored in tenths of a watt. Nodes are sampled about every 2 s."""
NODE = Kind(
    (
        "cores_busy",
        "memory_used_mib",
        "disk_used_mib",
        "temperature_c",
        "network_in_bytes_per_second",
        "network_out_bytes_per_second",
    ),
    (100, 1, 2**-4, 1, 2**-10, 2**-10),
    25.0,
)
"""By the names of `HostLoad`. Disks are stored in 16 MiB, rates in KiB per second. It is asked for every 10 s or so."""


class Level(NamedTuple):
    """A resolution: seconds per point, and for how many seconds points are kept."""

    width: int
    kept: int

    @property
    def block(self) -> int:
        """Seconds of a block."""
        return self.width * POINTS


LEVELS = (Level(1, 600), Level(10, 7200), Level(60, 86400), Level(600, 30 * 86400))
"""From fine to coarse. Points and blocks of each level are whole multiples of those of the previous one."""


class Block:
    """The points of a GPU or a node in a time that begins at a multiple of its length.

    `counts`, `totals` and `peaks` have all points of the first metric, then those of the next one.
    """

    __slots__ = ("counts", "kind", "peaks", "totals")

    def __init__(
        self, kind: Kind = GPU, counts: Iterable[int] = (), totals: Iterable[int] = (), peaks: Iterable[int] = ()
    ) -> None:
        none = bytes(4 * POINTS * len(kind.metrics))
        self.kind = kind
        self.counts = array("I", counts or none)
        self.totals = array("Q", totals or none + none)
        self.peaks = array("I", peaks or none)

    def read(self, point: int, reading: GpuReading | HostLoad) -> None:
        """Add a reading to a point. Unreadable values are left out."""
        counts, totals, peaks, place = self.counts, self.totals, self.peaks, point
        for metric, scale in zip(self.kind.metrics, self.kind.scales, strict=True):
            value = getattr(reading, metric)
            if value is not None and 0 <= (exact := value * scale) < _MOST:
                known = round(exact)
                counts[place] += 1
                totals[place] += known
                peaks[place] = max(peaks[place], known)
            place += POINTS

    def take(self, other: Block) -> None:
        """Add the points of another block of the same time."""
        self.counts = array("I", map(int.__add__, self.counts, other.counts))
        self.totals = array("Q", map(int.__add__, self.totals, other.totals))
        self.peaks = array("I", map(max, self.peaks, other.peaks))

    def copy(self) -> Block:
        """A copy."""
        return Block(self.kind, self.counts, self.totals, self.peaks)


def fold(block: Block, start: int, width: int, into: Block, coarser: int) -> None:
    """Add the points of a block, which begins at `start`, to the block of a coarser level that includes it."""
    ratio = min(POINTS, coarser // width)
    first = start // coarser % POINTS
    for metric in range(0, len(block.counts), POINTS):
        for group in range(POINTS // ratio):
            begin = metric + group * ratio
            counts = block.counts[begin : begin + ratio]
            if known := sum(counts):
                place = metric + first + group
                into.counts[place] += known
                into.totals[place] += sum(block.totals[begin : begin + ratio])
                into.peaks[place] = max(into.peaks[place], *block.peaks[begin : begin + ratio])


def level_for(span: float, points: int) -> Level:
    """The coarsest level that covers a span and still has so many points in it.

    A finer level would give the same means at a higher cost.
    """
    covering = [level for level in LEVELS if level.kept >= span] or [LEVELS[-1]]
    return max((level for level in covering if level.width <= span / points), default=covering[0])


class Grid:
    """Points in time: `points` of them, `step` seconds apart, the last one at `end`."""

    def __init__(self, end: float, span: float, points: int) -> None:
        self.span = span
        self.points = points
        self.step = span / points
        self.begin = end - span
        self._places: dict[tuple[int, int], Sequence[int | None]] = {}

    def places(self, start: int, width: int) -> Sequence[int | None]:
        """For each point of a block, the index of its time in the grid, or None."""
        found = self._places.get((start, width))
        if found is None:
            every = (ceil((start + n * width - self.begin) / self.step) - 1 for n in range(POINTS))
            found = self._places[start, width] = [n if 0 <= n < self.points else None for n in every]
        return found


Piece = tuple[int, int, Block]
"""A block with its begin (Unix seconds) and the seconds per point."""
Curve = tuple[float | None, ...]


def curves(pieces: Iterable[Piece], grid: Grid, width: int, kind: Kind = GPU) -> Mapping[str, Curve]:
    """Each metric over the grid, and its maximum as `NAME_max`. None where there is no reading.

    `width` is that of the chosen level. A point without a reading repeats the one before it, for a while.
    """
    laid = [(grid.places(start, seconds), block) for start, seconds, block in pieces]
    shown: dict[str, Curve] = {}
    for at, (metric, scale) in enumerate(zip(kind.metrics, kind.scales, strict=True)):
        part = slice(at * POINTS, (at + 1) * POINTS)
        counts, totals, peaks = [0] * grid.points, [0] * grid.points, [0] * grid.points
        for places, block in laid:
            values = zip(places, block.counts[part], block.totals[part], block.peaks[part], strict=True)
            for place, count, total, peak in values:
                if count and place is not None:
                    counts[place] += count
                    totals[place] += total
                    peaks[place] = max(peaks[place], peak)
        _hold(counts, totals, peaks, ceil(max(width, kind.hold) / grid.step) - 1)
        known = zip(counts, totals, peaks, strict=True)
        shown[metric] = tuple([round(total / count / scale, 1) if count else None for count, total, _ in known])
        largest = zip(counts, peaks, strict=True)
        shown[f"{metric}_max"] = tuple([peak / scale if count else None for count, peak in largest])
    return shown


def _hold(counts: list[int], totals: list[int], peaks: list[int], reach: int) -> None:
    """Repeat each reading for up to so many points after it."""
    last = None
    for place, count in enumerate(counts):
        if count:
            last = place
        elif last is not None and place - last <= reach:
            counts[place], totals[place], peaks[place] = counts[last], totals[last], peaks[last]
