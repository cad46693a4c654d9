"""When a GPU is taken, and when it is free."""

from __future__ import annotations

import math
from operator import itemgetter

from agentless.model.nodes.cluster import Gpu
from agentless.model.scheduling.sharing import ALONE, Sharing

FAR = 1e15
"""Stands for an unknown end: later than any known time, and not infinite."""


class GpuTimeline:
    """A GPU over time. `total` and `free` are bytes of its memory.

    `taken` has a (begin, end, sharing) for each user, in Unix seconds. If the GPU is `closed`, no task may join those
    that have it, whatever their terms. If it is not `listed`, containers cannot get it. If it is `foreign`, processes
    outside agentless use it: they are the first entry of `taken`, and have no end. `owed` are the begins and ends of
    those that are promised to tasks for which nobody gives way. A part of a GPU has a `parent`, and the `index` of that
    GPU.
    """

    __slots__ = (
        "closed",
        "foreign",
        "free",
        "index",
        "listed",
        "name",
        "numa",
        "number",
        "owed",
        "parent",
        "taken",
        "total",
        "utilization",
        "uuid",
        "vendor",
    )

    def __init__(self, gpu: Gpu, numa: int | None) -> None:
        reading = gpu.reading
        self.index = reading.index
        self.number = reading.number
        self.parent = reading.parent
        self.uuid = reading.uuid
        self.vendor = reading.vendor
        self.name = reading.name or ""
        self.numa = numa
        self.total = (reading.memory_total_mib or 0) << 20
        unused = reading.memory_unused_mib
        self.free = self.total if unused is None else unused << 20
        self.utilization = reading.utilization_pct or 0
        self.foreign = bool(gpu.strangers)
        self.closed = bool(gpu.closed)
        self.listed = not gpu.no_container
        self.taken: list[tuple[float, float, Sharing]] = [(-math.inf, FAR, ALONE)] if self.foreign else []
        self.owed: list[tuple[float, float]] = []

    @property
    def rated(self) -> tuple[str, int, bool]:
        """Its name, its memory in bytes, and whether it is a part of a GPU: what makes it good for a task."""
        return self.name, self.total, self.parent is not None

    def opens(self, now: float, sharing: Sharing = ALONE) -> float:
        """The first time from now on at which a task with these terms could have it, if only for a moment."""
        moment, others = now, self._others(sharing)
        if not others:
            return moment
        if sharing.limit > 1 and not self.closed:
            ends = sorted([end for _, end, _ in others if end > now])
            return next((moment for moment in (now, *ends) if self._shares(moment, sharing)), math.inf)
        for begin, end, _ in sorted(others, key=itemgetter(0)):
            if begin > moment:
                break
            moment = max(moment, end)
        return moment

    def is_open(self, begin: float, end: float, sharing: Sharing = ALONE) -> bool:
        """Whether a task with these terms may have it from `begin` to `end`."""
        if sharing.limit == 1 or self.closed:
            for taken, until, _ in self._others(sharing):  # noqa: SIM110 - the innermost loop of the queue
                if taken < end and begin < until:
                    return False
            return True
        # The number of tasks only grows when one of them begins.
        moments = (begin, *[taken for taken, _, _ in self.taken if begin < taken < end])
        return all(self._shares(moment, sharing) for moment in moments)

    def is_owed(self, begin: float, end: float) -> bool:
        """Whether it is promised, at some time from `begin` to `end`, to one for whom nobody gives way."""
        return any(promised < end and begin < until for promised, until in self.owed)

    def _others(self, sharing: Sharing) -> list[tuple[float, float, Sharing]]:
        """The entries of `taken` that exclude a task with these terms."""
        return self.taken[1:] if self.foreign and sharing.strangers else self.taken

    def _shares(self, moment: float, sharing: Sharing) -> bool:
        """Whether a task with these terms fits beside all others at a moment."""
        return sharing.fits([terms for taken, until, terms in self.taken if taken <= moment < until], self.total)
