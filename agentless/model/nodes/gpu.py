"""Readings of the GPU driver, in its own units. An unreadable field is None, never 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentless.model.nodes.device import Device, DeviceKind, GpuNumber

MOST_GPUS = 64
"""The most GPUs of a node: twice the limit of NVIDIA's driver (NV_MAX_DEVICES in nvlimits.h is 32)."""

Platform = Literal["", "wsl", "jetson"]
"""What a machine is, where that matters for its GPUs: WSL2 in Windows, or a Jetson."""

_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. MiB, percent, °C, watts, MHz; `pci_bus_id` as `pci_bus_id()` spells it.

    `needs_reset` is True if the driver says so, or that the GPU is lost. None if it says nothing.
    `barred` says in words why no task may have it, `solo` why only one task at a time may. Both are usually empty.
    A part of a GPU (a MIG slice, a partition) is a reading of its own: `parent` is the id of its GPU, `index` the
    number of that, `part` its number below it, and `profile` its size as the vendor names it, like `1g.10gb`.
    `unlisted` is the platform whose driver does not list the processes on it, empty if it does. `unified`: its memory
    is that of the machine, of which the driver says nothing. `removable`: it is external, and may be unplugged.
    `hidden` says in words why its processes are not known, where those on GPUs of another vendor are. `divided`: parts
    of it are listed, so it is only given in parts. `unexplained_mib` is the memory in use, of the whole GPU, that its
    processes do not have; None where a driver lists every process that has memory.
    """

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
    needs_reset: bool | None = None
    barred: str = ""
    solo: str = ""
    vendor: str = ""
    kind: DeviceKind = "gpu"
    parent: str | None = None
    part: int | None = None
    profile: str = ""
    unlisted: Platform = ""
    unified: bool = False
    removable: bool = False
    hidden: str = ""
    divided: bool = False
    unexplained_mib: int | None = None

    @property
    def device(self) -> Device:
        """The device that a task gets."""
        return Device(self.uuid, self.kind, self.parent, self.vendor)

    @property
    def gpu(self) -> str:
        """The id of the whole GPU: its own, or that of the GPU that it is a part of."""
        return self.parent or self.uuid

    @property
    def in_parts(self) -> bool:
        """Whether it is only given in parts, if there are any."""
        return self.divided or bool(self.mig)

    @property
    def number(self) -> GpuNumber:
        """How people call it on its node: 0, or 0/1 for part 1 of GPU 0."""
        return self.index if self.part is None else f"{self.index}/{self.part}"

    @property
    def memory_unused_mib(self) -> int | None:
        """Unused memory, from the driver or calculated. None if neither is known."""
        if self.memory_free_mib is not None or self.memory_total_mib is None or self.memory_used_mib is None:
            return self.memory_free_mib
        return self.memory_total_mib - self.memory_used_mib


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

    `processes` is None if they could not be read. Then no GPU of the node can be allocated. `error` says in words what
    the driver could not do; if `hung`, it did not answer in time. `lost` are PCI bus ids of GPUs that the driver cannot
    reach. `lister` is the command with which a person lists the GPUs. `mismatch`: the loaded driver is not the one that
    is installed. `unplugged` are the UUIDs of external GPUs that may be missing without a fault.
    """

    gpus: tuple[GpuReading, ...] = ()
    processes: tuple[GpuProcess, ...] | None = ()
    error: str | None = None
    hung: bool = False
    lost: tuple[str, ...] = ()
    lister: str = ""
    mismatch: bool = False
    unplugged: frozenset[str] = frozenset()

    @property
    def whole(self) -> tuple[GpuReading, ...]:
        """The GPUs without their parts."""
        return tuple(gpu for gpu in self.gpus if gpu.parent is None)


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """The links between GPUs of a node, by their indices. Unknown links are missing.

    `links` has a weight for each pair, lower index first. A higher weight is a faster link.
    `numa` has the NUMA node of a GPU, if there is exactly one.
    """

    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    numa: Mapping[int, int] = field(default_factory=dict)

    def closeness(self, one: int, other: int) -> int:
        """The weight of the link between two GPUs, 0 if unknown."""
        return self.links.get((min(one, other), max(one, other)), 0)


@dataclass(frozen=True, slots=True)
class GpuFault:
    """An error of a GPU in the kernel log. `name` is its kind as the vendor names it, like `Xid 79`.

    `message` is the text of the log. `meaning` explains a fault after which the GPU needs repair, None for a harmless
    one. `logged_at` is the time in the log, in seconds since boot, which identifies the line. `age_seconds` is how long
    ago that was. Both are None if unknown.
    """

    pci_bus_id: str
    name: str
    message: str = ""
    logged_at: float | None = None
    age_seconds: float | None = None
    meaning: str | None = None

    @property
    def key(self) -> str:
        """The key of this line of the log. It never changes."""
        return f"{self.name.lower()} {self.logged_at}"


def pci_bus_id(text: str) -> str | None:
    """The PCI address in `text` as Linux writes it, like `0000:3b:00.0`, or None.

    NVIDIA's tools write `00000000:3B:00.0` for the same device. Addresses are only compared in this form.
    """
    match = _PCI.fullmatch(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else None
