"""A GPU as a place for tasks: taken until when, free from when."""

from __future__ import annotations

import math
from operator import itemgetter

from agentless.model.nodes.cluster import Gpu
from agentless.model.scheduling.sharing import ALONE, Sharing

FAR = 1e15
"""Later than any time that is known, and not for ever."""


class GpuTimeline:
    """A GPU that tasks may have. `total` and `free` are bytes of its memory, in all and unused now.

    `taken` is when it is, as (from, to) in Unix seconds, and on which terms; `closed` whether nobody may come to it as
    long as somebody has it, on whatever terms; `foreign` whether processes outside agentless use it: they are the first
    that have it, and stay beside and after all tasks.
    """

    __slots__ = (
        "closed",
        "foreign",
        "free",
        "index",
        "name",
        "numa",
        "taken",
        "total",
        "utilization",
        "uuid",
        "vendor",
    )

    def __init__(self, gpu: Gpu, numa: int | None) -> None:
        reading = gpu.reading
        self.index = reading.index
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
        self.taken: list[tuple[float, float, Sharing]] = [(-math.inf, FAR, ALONE)] if self.foreign else []

    def opens(self, now: float, sharing: Sharing = ALONE) -> float:
        """When one with these terms could have it for the first time from now on, for however short a time."""
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
        """Whether one with these terms may have it all the time between."""
        if sharing.limit == 1 or self.closed:
            for taken, until, _ in self._others(sharing):  # noqa: SIM110 - the innermost loop of the queue
                if taken < end and begin < until:
                    return False
            return True
        # There are the most of them at the beginning, or when one of them begins.
        moments = (begin, *[taken for taken, _, _ in self.taken if begin < taken < end])
        return all(self._shares(moment, sharing) for moment in moments)

    def _others(self, sharing: Sharing) -> list[tuple[float, float, Sharing]]:
        """Who has it, of those that one with these terms may not be beside."""
        return self.taken[1:] if self.foreign and sharing.strangers else self.taken

    def _shares(self, moment: float, sharing: Sharing) -> bool:
        """Whether it fits beside all who have it at a moment."""
        return sharing.fits([terms for taken, until, terms in self.taken if taken <= moment < until], self.total)
