"""What is published of numbers over time, flat and with documented names like `view`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

By = Literal["owner", "node", "batch"]
"""What the lines of a usage are of."""
BY: tuple[By, ...] = get_args(By)


@dataclass(frozen=True, slots=True)
class GpuHistoryView:
    """The numbers of a GPU at evenly spaced times, the oldest first; None where nothing is known.

    Each is the mean of the readings in the time that ends then, and under `…_max` the largest of them.
    """

    node: str
    index: int
    uuid: str
    utilization_pct: tuple[float | None, ...]
    utilization_pct_max: tuple[float | None, ...]
    memory_used_mib: tuple[float | None, ...]
    memory_used_mib_max: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]
    temperature_c_max: tuple[float | None, ...]
    power_w: tuple[float | None, ...]
    power_w_max: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The numbers of GPUs over one span: `at` is the time of the last of them (Unix seconds), `step` seconds apart."""

    at: float
    step: float
    gpus: tuple[GpuHistoryView, ...]


@dataclass(frozen=True, slots=True)
class UsageRowView:
    """What one owner, node or batch had of the GPUs in a span.

    `tasks` are those that ran in it, `share` is of all GPU time, 1 is all of it. `utilization_pct` is how busy the GPUs
    were on average while the tasks had them. None is "not known".
    """

    name: str
    gpu_hours: float
    tasks: int
    share: float | None
    utilization_pct: float | None


@dataclass(frozen=True, slots=True)
class UsagePeriodView:
    """The GPU-hours of all from `begins_at` to the next period, or to the end of the span."""

    begins_at: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class UsageView:
    """What was had of the GPUs in a span: of all together in `total`, and by whatever `by` says, the largest first.

    `more` is how many rows are left out after a thousand. `gpus` are those of the inventory now, as far as they are
    known and not excluded.
    """

    begins_at: str
    ends_at: str
    by: str
    gpus: int
    total: UsageRowView
    rows: tuple[UsageRowView, ...]
    more: int
    periods: tuple[UsagePeriodView, ...]
