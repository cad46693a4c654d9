"""GPU usage in a span of time: who held how many GPUs, and how busy they were.

A task holds its GPUs from its start to its end, including pauses and times when its node does not answer. The part
within the span counts. Each of several tasks that share a GPU counts it in full. The driver reports utilization for the
whole GPU, so times in which others used the GPU are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from operator import attrgetter

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.usage.figures import By, UsagePeriodView, UsageRowView, UsageView
from agentless.model.usage.spent import GpuActivity, Spent
from agentless.rules.views.publish import timestamp

ROWS = 1000
"""The most rows in the result, those with the most GPU-hours."""


@dataclass(slots=True)
class _Row:
    seconds: float = 0.0
    tasks: int = 0
    seen: float = 0.0
    busy: float = 0.0
    lent: float = 0.0
    away: float = 0.0


class Tally:
    """Sums up usage between the first and the last of `edges`, and per period between them (Unix seconds).

    The GPUs of `clusters` are not among those of the inventory, so what was used there is no share of them.
    """

    def __init__(self, edges: Sequence[float], by: By, clusters: Container[str] = ()) -> None:
        self._edges = edges
        self._clusters = clusters
        self._by = by
        self._name: Callable[[Spent], str] = attrgetter(by)
        self._rows: dict[str, _Row] = defaultdict(_Row)
        self._periods = [0.0] * (len(edges) - 1)

    def add(self, spent: Spent) -> None:
        """Add usage, as far as it is within the span."""
        edges = self._edges
        if spent.end <= edges[0] or spent.begin >= edges[-1]:
            return
        begin, end = max(spent.begin, edges[0]), min(spent.end, edges[-1])
        part = (end - begin) / (spent.end - spent.begin) if spent.end > spent.begin else 1.0
        row = self._rows[self._name(spent)]
        row.tasks += 1
        row.seconds += spent.gpus * (end - begin)
        row.lent += spent.gpus * (end - begin) * spent.lent
        row.away += spent.gpus * (end - begin) * (spent.node in self._clusters)
        row.seen += spent.seen * part
        row.busy += spent.busy * part
        period = bisect_right(edges, begin) - 1
        while begin < end:
            until = min(end, edges[period + 1])
            self._periods[period] += spent.gpus * (until - begin)
            begin, period = until, period + 1

    def view(self, gpus: int, parts: int = 0) -> UsageView:
        """The published sums; `gpus` is the number of GPUs in the cluster, `parts` of which are parts of GPUs."""
        edges, capacity = self._edges, gpus * (self._edges[-1] - self._edges[0])
        total = _Row()
        for row in self._rows.values():
            total.tasks += row.tasks
            total.seconds += row.seconds
            total.lent += row.lent
            total.away += row.away
            total.seen += row.seen
            total.busy += row.busy
        most = nsmallest(ROWS, self._rows.items(), lambda named: (-named[1].seconds, -named[1].tasks, named[0]))
        periods = zip(edges, self._periods, strict=False)
        return UsageView(
            begins_at=timestamp(edges[0]) or "",
            ends_at=timestamp(edges[-1]) or "",
            by=self._by,
            gpus=gpus,
            total=_row_view("", total, capacity),
            rows=tuple(_row_view(name, row, capacity) for name, row in most),
            more=len(self._rows) - len(most),
            periods=tuple(UsagePeriodView(timestamp(at) or "", round(seconds / 3600, 3)) for at, seconds in periods),
            parts=parts,
        )


def observed(
    readings: Iterable[GpuReading], held: Iterable[str], others: Iterable[str], seconds: float, before: GpuActivity
) -> GpuActivity:
    """The activity of the GPUs of a task after so many more seconds. `others` are UUIDs of GPUs with other users."""
    mine = set(held).difference(others)
    loads = (gpu.utilization_pct for gpu in readings if gpu.uuid in mine)
    known = [load for load in loads if load is not None and 0 <= load <= 100]
    return GpuActivity(before.seen + seconds * len(known), before.busy + seconds * sum(known) / 100)


def gpus_of(cluster: Cluster, records: Mapping[str, NodeRecord]) -> tuple[int, int]:
    """The number of usable GPUs, and how many of them are parts of GPUs, each of which counts in GPU-hours as a GPU.

    A node that has not answered yet counts with the GPUs in its record.
    """
    count = parts = 0
    for name, node in cluster.nodes.items():
        if node.gpus:
            usable = [gpu.reading for gpu in node.gpus if gpu.state != "excluded" and not gpu.reading.in_parts]
            count += len(usable)
            parts += sum(reading.parent is not None for reading in usable)
        elif name in records:
            count += sum(gpu.reading.index not in node.config.exclude_gpus for gpu in records[name].gpus.values())
    return count, parts


def _row_view(name: str, row: _Row, capacity: float) -> UsageRowView:
    return UsageRowView(
        name=name,
        gpu_hours=round(row.seconds / 3600, 3),
        tasks=row.tasks,
        share=round((row.seconds - row.away) / capacity, 4) if capacity else None,
        utilization_pct=round(100 * row.busy / row.seen, 1) if row.seen else None,
        lent_gpu_hours=round(row.lent / 3600, 3),
        cluster_gpu_hours=round(row.away / 3600, 3),
    )
