"""What a node's GPU driver says, in the driver's own units. A field that could not be read is None, never 0."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. MiB, percent, °C, watts, MHz; `pci_bus_id` as `pci_bus_id()` spells it."""

    index: int
    uuid: str
    name: str | None = None
    driver: str | None = None
    pci_bus_id: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    utilization_pct: int | None = None
    memory_utilization_pct: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    fan_pct: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    pstate: str | None = None
    ecc_uncorrected: int | None = None
    mig: bool | None = None
    compute_mode: str | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU. `container` is the full id of the container it runs in, None outside."""

    gpu_uuid: str
    pid: int
    name: str | None = None
    memory_mib: int | None = None
    user: str | None = None
    command: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """All GPUs of one node at one moment.

    `processes` is None when it is not known who uses the GPUs: no GPU of the node is placeable then. `error` says
    in words what the driver could not do; with `hung` it did not answer in its time.
    """

    gpus: tuple[GpuReading, ...] = ()
    processes: tuple[GpuProcess, ...] | None = ()
    error: str | None = None
    hung: bool = False


def pci_bus_id(text: str) -> str | None:
    """The PCI address in `text` as Linux spells it, like `0000:3b:00.0`; None when it is none.

    NVIDIA's tools write `00000000:3B:00.0` for the same device: addresses are compared only after this.
    """
    match = _PCI.fullmatch(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else None
