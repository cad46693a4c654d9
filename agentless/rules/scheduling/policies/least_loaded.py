"""The node that has the least to do, by what is set aside and by how busy its GPUs are."""

from __future__ import annotations

from agentless.rules.scheduling.node_timeline import NodeTimeline


def cost(room: NodeTimeline, spare: int) -> tuple[float, ...]:  # noqa: ARG001 - all policies are called alike
    """The share of its GPUs that is taken, of its cores and memory that is set aside, and of its GPUs' time in use."""
    seats = max(1, len(room.seats))
    busy = sum(seat.utilization for seat in room.seats) / seats / 100
    return ((len(room.seats) - room.open_seats) / seats + room.in_use + busy,)
