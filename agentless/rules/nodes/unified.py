"""GPUs without memory of their own, whose memory is the machine's."""

from __future__ import annotations

from dataclasses import replace

from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuReading


def with_memory(reading: GpuReading, seen: Observation) -> GpuReading:
    """The reading of a GPU; with the memory of its machine, if it has none of its own and that is known."""
    total = seen.host.memory_mib if seen.host else None
    available = seen.load.memory_available_mib if seen.load else None
    if not reading.unified or total is None or available is None or available > total:
        return reading
    return replace(reading, memory_total_mib=total, memory_used_mib=total - available, memory_free_mib=available)
