"""GPUs that a task holds and does not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """After how many seconds at 0 % a GPU is reported, and after how many its task is stopped; None: never."""

    report: float = 1800.0
    stop: float | None = None


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """What is reported of a task: its idle GPUs by UUID, each with the time since when (Unix seconds).

    `all_since` is since when all of its GPUs are, None: some work. `stop_at` is when it will be stopped for that.
    """

    since: Mapping[str, float]
    all_since: float | None = None
    stop_at: float | None = None
