"""Idle GPUs of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """Seconds at 0 % after which a GPU is reported, and after which its task is stopped (None: never).

    After `preempt` seconds with all GPUs at 0 %, its task gives way to others, as if it were preemptible (None: never).
    """

    report: float = 1800.0
    stop: float | None = None
    preempt: float | None = None


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """The idle GPUs of a task, by UUID, each with the time since when (Unix seconds).

    `all_since` is since when all of its GPUs are idle, None if some are used. `stop_at` is when it will be stopped,
    `lent_at` from when on others may have its place.
    """

    since: Mapping[str, float]
    all_since: float | None = None
    stop_at: float | None = None
    lent_at: float | None = None
