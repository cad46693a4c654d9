"""What is published of numbers over time, flat and with documented names like `view`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from agentless.model.nodes.device import GpuNumber

By = Literal["owner", "node", "batch"]
"""What the lines of a usage are of."""
BY: tuple[By, ...] = get_args(By)


@dataclass(frozen=True, slots=True)
class GpuHistoryView:
    """Samples of a GPU at evenly spaced times, oldest first; None where no data exists.

    Each value is the mean of the readings in the interval that ends then, and `…_max` the maximum. `number` is that of
    a target: 0, or "0/1" for part 1 of GPU 0.
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
    number: GpuNumber | None = None


@dataclass(frozen=True, slots=True)
class NodeHistoryView:
    """How busy a node was at evenly spaced times, like `GpuHistoryView`."""

    node: str
    cores_busy: tuple[float | None, ...]
    cores_busy_max: tuple[float | None, ...]
    memory_used_mib: tuple[float | None, ...]
    memory_used_mib_max: tuple[float | None, ...]
    disk_used_mib: tuple[float | None, ...]
    disk_used_mib_max: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]
    temperature_c_max: tuple[float | None, ...]
    network_in_bytes_per_second: tuple[float | None, ...]
    network_in_bytes_per_second_max: tuple[float | None, ...]
    network_out_bytes_per_second: tuple[float | None, ...]
    network_out_bytes_per_second_max: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Samples of GPUs over a time span: `at` is the time of the last one (Unix seconds), `step` seconds apart.

    `nodes` has those of nodes, if they were requested.
    """

    at: float
    step: float
    gpus: tuple[GpuHistoryView, ...]
    nodes: tuple[NodeHistoryView, ...] = ()


@dataclass(frozen=True, slots=True)
class UsageRowView:
    """GPU usage of one owner, node or batch in a time span.

    `tasks` ran in the span, a VPS once for each of its starts; `share` is the fraction of all GPU time.
    `utilization_pct` is the average GPU utilization of the tasks, None if unknown. `lent_gpu_hours` are those of
    `gpu_hours` that preemptible tasks used, `cluster_gpu_hours` those on clusters, which are no part of `share`.
    """

    name: str
    gpu_hours: float
    tasks: int
    share: float | None
    utilization_pct: float | None
    lent_gpu_hours: float = 0.0
    cluster_gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class UsagePeriodView:
    """GPU-hours of all owners from `begins_at` to the next period, or to the end of the span."""

    begins_at: str
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class UsageView:
    """GPU usage in a time span: in `total`, and in rows by owner, node or batch (`by`), largest first.

    `more` is the number of rows beyond the first thousand. `gpus` is the number of known GPUs in the inventory that are
    not excluded; of these, `parts` are parts of GPUs.
    """

    begins_at: str
    ends_at: str
    by: str
    gpus: int
    total: UsageRowView
    rows: tuple[UsageRowView, ...]
    more: int
    periods: tuple[UsagePeriodView, ...]
    parts: int = 0
