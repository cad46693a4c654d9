"""Which of the GPUs of a node a task gets: alike, and near each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from agentless.rules.seat import Seat
from agentless.rules.shape import Shape

_Key = TypeVar("_Key", bound=Hashable)


def choose(seats: list[Seat], shape: Shape) -> list[Seat] | None:
    """As many of these as the shape wants, of the best type there is, all alike if that goes; None when too few."""
    if len(seats) < shape.gpus:
        return None
    if shape.indices:
        by_index = {seat.index: seat for seat in seats}
        return [by_index[index] for index in shape.indices] if len(by_index) == shape.gpus else None
    if len(seats) == shape.gpus:
        return seats
    alike = _groups(seats, lambda seat: (shape.rank(seat.name) or 0, seat.total, seat.name))
    ranked = _groups(seats, lambda seat: (shape.rank(seat.name) or 0, 0, ""))
    for groups in (alike, ranked):
        if enough := [key for key in groups if len(groups[key]) >= shape.gpus]:
            return _near(groups[min(enough)], shape)
    return _near(sorted(seats, key=lambda seat: shape.rank(seat.name) or 0)[: shape.gpus], shape)


def _near(seats: list[Seat], shape: Shape) -> list[Seat]:
    """On one NUMA node if that goes, the one with the fewest to spare; else on as few as possible."""
    groups = sorted(
        _groups(seats, lambda seat: seat.numa).values(),
        key=lambda group: (
            group[0].numa != shape.numa,
            len(group) < shape.gpus,
            len(group) if len(group) >= shape.gpus else -len(group),
            group[0].index,
        ),
    )
    found = [seat for group in groups for seat in group][: shape.gpus]
    return sorted(found, key=lambda seat: seat.index)


def _groups(seats: Iterable[Seat], key: Callable[[Seat], _Key]) -> dict[_Key, list[Seat]]:
    found: dict[_Key, list[Seat]] = {}
    for seat in seats:
        found.setdefault(key(seat), []).append(seat)
    return found
