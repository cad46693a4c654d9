"""Checks of new reservations, the tasks that are in their way, and the notice beside a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentless.errors import Refused, Unreachable, UsageError
from agentless.model.moment import format_moment
from agentless.model.nodes.cluster import Allocation, Node
from agentless.model.nodes.device import GpuNumber
from agentless.model.scheduling.reservation import Reservation

SHOWN_BEFORE = 86400.0
"""A reservation is shown beside its GPUs from so many seconds before its begin."""
LATE = 60.0
"""Seconds by which a begin may be in the past: a request for `now` takes time to arrive."""
LATEST = 1e11
"""The latest possible Unix seconds, in the year 5138."""
MAX_REASON = 200

_OWNER = re.compile(r"[^\s@]+(@[^\s@]+)?")


def check_reservation(new: Reservation, others: Iterable[Reservation], node: Node, now: float) -> None:
    """Raise an error for a senseless request, for missing GPUs, and for a conflict with another reservation."""
    if new.owner is not None and not (_OWNER.fullmatch(new.owner) and new.owner.isprintable()):
        raise UsageError(f"owner {new.owner[:80]!r}: use USER@HOST, as in agentless ps, or USER")
    if not new.reason.isprintable() or len(new.reason) > MAX_REASON:
        raise UsageError(f"the reason must be one line of at most {MAX_REASON} characters")
    if not abs(new.begin) < LATEST > abs(new.end):
        raise UsageError("the start or end is out of range; use a time like 2026-11-22T08:00")
    if new.end <= new.begin:
        raise UsageError(
            f"the end, {format_moment(new.end)}, is not after the start, {format_moment(new.begin)}; choose a later end"
        )
    if new.begin < now - LATE:
        raise UsageError(f"the start, {format_moment(new.begin)}, has passed; choose a later time, or now")
    known = {gpu.reading.number for gpu in node.gpus}
    if missing := [index for index in new.gpus if index not in known]:
        if node.state == "online":
            raise Refused(f"{new.target}: no GPU {missing[0]}; list GPUs with: agentless gpus {node.name}")
        raise Unreachable(
            f"{new.target}: cannot tell whether GPU {missing[0]} exists: {node.name} is {node.state} "
            f"({node.reason}); reserve the whole node, or retry later"
        )
    if other := next((other for other in others if new.clashes(other)), None):
        raise Refused(
            f"{new.target}: {other.target} is already {other}; cancel that with: agentless unreserve {other.id}"
        )


def in_the_way(reservation: Reservation, node: Node) -> tuple[str, ...]:
    """The tasks of others that may still run when it begins, in words. They are not stopped.

    Preemptible ones are not in the way of an owner: they give way when that owner's tasks come.
    """
    reserved = {gpu.reading.uuid for gpu in node.gpus if reservation.covers(gpu.reading.number)}
    return tuple(
        _may_stay(allocation)
        for allocation in node.allocations
        if not reservation.lets(allocation.owner)
        and not (allocation.yields and reservation.owner)
        and (not reservation.gpus or allocation.exclusive or not reserved.isdisjoint(allocation.gpu_uuids))
        and (allocation.ends_at is None or allocation.ends_at > reservation.begin)
    )


def shown(node: Node, gpu: GpuNumber, now: float) -> Reservation | None:
    """The reservation of a GPU that is active or begins within a day, else None."""
    soon = [each for each in node.reservations if each.covers(gpu) and each.begin <= now + SHOWN_BEFORE]
    return soon[0] if soon else None


def _may_stay(allocation: Allocation) -> str:
    if allocation.ends_at is None:
        return f"{allocation} (no time limit)"
    return f"{allocation} (may run until {format_moment(allocation.ends_at)})"
