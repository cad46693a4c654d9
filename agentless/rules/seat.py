"""A GPU as a place for tasks: taken until when, free from when."""

from __future__ import annotations

from agentless.model.cluster import Gpu


class Seat:
    """A GPU that tasks may have. `total` and `free` are bytes of its memory, in all and unused now.

    `taken` is when it is, as (from, to) in Unix seconds; `foreign` whether a process outside agentless uses it,
    `intruded` whether one uses it beside the task that holds it, and will go on doing so after that.
    """

    __slots__ = ("foreign", "free", "index", "intruded", "name", "numa", "taken", "total", "utilization", "uuid")

    def __init__(self, gpu: Gpu, numa: int | None) -> None:
        reading = gpu.reading
        self.index = reading.index
        self.uuid = reading.uuid
        self.name = reading.name or ""
        self.numa = numa
        self.total = (reading.memory_total_mib or 0) << 20
        unused = reading.memory_unused_mib
        self.free = self.total if unused is None else unused << 20
        self.utilization = reading.utilization_pct or 0
        self.foreign = gpu.state == "foreign"
        self.intruded = bool(gpu.intruders)
        self.taken: list[tuple[float, float]] = []

    def opens(self, now: float) -> float:
        """When nobody has it for the first time from now on."""
        moment = now
        for begin, end in sorted(self.taken):
            if begin > moment:
                break
            moment = max(moment, end)
        return moment

    def is_open(self, begin: float, end: float) -> bool:
        """Whether nobody has it at any time between."""
        for taken, until in self.taken:  # noqa: SIM110 - the innermost loop of the queue
            if taken < end and begin < until:
                return False
        return True
