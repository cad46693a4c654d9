"""The loads of a node's GPUs: which job was on which GPU when, and what that makes of its readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentless.demo.life.work import LONGEST_BEFORE, Job, Reading, Shift, reading

_EARLY = 30.0
_BEFORE = 600.0


class Loads:
    """The GPUs of one node, by UUID. `now` gives Unix seconds.

    What begins in the first seconds moves as if it had run for ten minutes: nobody wants to watch a warm-up first.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._early_until = now() + _EARLY
        self._shifts: dict[str, list[Shift]] = {}

    def begin_with(self, gpu: str, shifts: list[Shift]) -> None:
        """Let a GPU have had these, in their order, before it has any other."""
        self._shifts[gpu] = [*shifts]

    def hold(self, held: Mapping[str, Job]) -> None:
        """From now on just these GPUs work, each at its job."""
        now = self._now()
        for gpu, shifts in self._shifts.items():
            if shifts and shifts[-1].ended > now and held.get(gpu) != shifts[-1].job:
                shifts[-1] = Shift(shifts[-1].job, shifts[-1].began, now)
            shifts[:] = [each for each in shifts if now - each.ended < LONGEST_BEFORE]
        for gpu, job in held.items():
            shifts = self._shifts.setdefault(gpu, [])
            if not shifts or shifts[-1].ended <= now:
                shifts.append(Shift(job, now if now >= self._early_until else now - _BEFORE))

    def reading(self, gpu: str, memory_mib: int, power_limit_w: float, at: float | None = None) -> Reading:
        """What a GPU says now, or said at another time."""
        return reading(self._shifts.get(gpu, ()), self._now() if at is None else at, memory_mib, power_limit_w)
