"""What a node's GPU driver says, in the driver's own units. A field that could not be read is None, never 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.nodes.device import Device

MOST_GPUS = 64
"""GPUs of a node: twice what NVIDIA's driver can have on one machine (NV_MAX_DEVICES in its nvlimits.h is 32)."""

_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. MiB, percent, °C, watts, MHz; `pci_bus_id` as `pci_bus_id()` spells it.

    `needs_reset` is True where the driver says that it does, or that the GPU is lost; None where it says nothing.
    `barred` says in words why nobody may have it, `solo` why only one task may, both empty where that is not so.
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

    @property
    def device(self) -> Device:
        """What a task is given of it: all."""
        return Device(self.uuid, vendor=self.vendor)

    @property
    def memory_unused_mib(self) -> int | None:
        """What nobody uses: as the driver says, else what is left of the total; None when neither is known."""
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

    `processes` is None when it is not known who uses the GPUs: no GPU of the node is placeable then. `error` says
    in words what the driver could not do; with `hung` it did not answer in its time. `lost` are the PCI bus ids of
    GPUs that it knows of and cannot reach. `lister` is the command that lists the GPUs for a person.
    """

    gpus: tuple[GpuReading, ...] = ()
    processes: tuple[GpuProcess, ...] | None = ()
    error: str | None = None
    hung: bool = False
    lost: tuple[str, ...] = ()
    lister: str = ""


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """How the GPUs of a node are joined, by their indices; what was not printed, or not understood, is not in it.

    `links` has for each pair, the lower index first, how near they are to each other: more is nearer, and faster.
    `numa` has the NUMA node that a GPU is near to, where it is just one.
    """

    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    numa: Mapping[int, int] = field(default_factory=dict)

    def closeness(self, one: int, other: int) -> int:
        """How near two GPUs are to each other; 0 where it is not known."""
        return self.links.get((min(one, other), max(one, other)), 0)


@dataclass(frozen=True, slots=True)
class GpuFault:
    """An error of a GPU in the kernel log. `name` is what its vendor calls this kind, like `Xid 79`.

    `message` is what the log says. `meaning` is in words, for a fault after which the GPU needs help; None for one that
    says nothing of the GPU. `logged_at` is when, in seconds from boot as the log has it: one line is the same in every
    look. `age_seconds` is how long ago that was. Both are None where it is not known.
    """

    pci_bus_id: str
    name: str
    message: str = ""
    logged_at: float | None = None
    age_seconds: float | None = None
    meaning: str | None = None

    @property
    def key(self) -> str:
        """The same for the same line in every look."""
        return f"{self.name.lower()} {self.logged_at}"


def pci_bus_id(text: str) -> str | None:
    """The PCI address in `text` as Linux spells it, like `0000:3b:00.0`; None when it is none.

    NVIDIA's tools write `00000000:3B:00.0` for the same device: addresses are compared only after this.
    """
    match = _PCI.fullmatch(text)
    return f"{int(match[1], 16):04x}:{match[2].lower()}" if match else None
