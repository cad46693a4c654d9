"""A node as Slurm has to know it: made from what agentless has read, and from a look at the node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from agentless.model.nodes.cluster import Gpu, Node
from agentless.model.nodes.gpu import GpuTopology
from agentless.model.nodes.node import HostFacts, NodeConfig
from agentless.rules.slurm.vendors import VENDORS


@dataclass(frozen=True, slots=True)
class Look:
    """What a node says of itself for Slurm; empty where it says nothing.

    `host` is its host name and `address` the one at which SSH has reached it. `cores` has for each CPU its socket and
    the first CPU of its core. `devices` are the device files of GPUs by their PCI bus ids. `slurmd`, `slurmctld` and
    `sinfo` are the first lines of `slurmd -C`, `scontrol -o show node` and `sinfo -o "%N %G"`.
    """

    host: str = ""
    address: str = ""
    cores: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    slurmd: str = ""
    slurmctld: str = ""
    sinfo: str = ""


@dataclass(frozen=True, slots=True)
class SlurmGpu:
    """A GPU, or a part of one. `profile` is the size of a part.

    `file` is its device file, `guessed` whether that is only its number. `cores` are the cores near it as Slurm numbers
    them, `links` how near each GPU of the node is (-1: itself); both are empty if unknown.
    """

    number: str
    vendor: str
    model: str
    memory_mib: int | None = None
    profile: str = ""
    file: str = ""
    guessed: bool = False
    cores: str = ""
    links: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `layout` is how many sockets, cores per socket and threads per core it has, None if unknown or uneven.

    `left_out` are its GPUs that Slurm does not get, each with the reason.
    """

    name: str
    host: str
    address: str
    cpus: int
    layout: tuple[int, int, int] | None
    memory_mib: int
    labels: Mapping[str, str]
    fabric: str
    gpus: tuple[SlurmGpu, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def automatic(self) -> str:
        """Why Slurm has to find the GPUs by itself, empty if all are known."""
        if any(gpu.profile for gpu in self.gpus):
            return "only the driver knows the device files of slices and partitions"
        if any(not gpu.file for gpu in self.gpus):
            return "the device files of its GPUs cannot be read"
        return ""


def machine_of(node: Node, look: Look) -> Machine | str:
    """The machine that a node is, or why it is not known."""
    seen, host = node.observation, node.observation.host
    if seen.error is not None:
        return seen.error
    if host is None or not host.cores or not host.memory_mib:
        return "its cores or memory cannot be read"
    gpus = [gpu for gpu in node.gpus if gpu.home is None and not gpu.reading.in_parts]
    if gpus and seen.sample and seen.sample.error:
        return f"its GPUs cannot be read: {seen.sample.error}"
    listed = {reading.uuid for reading in seen.sample.gpus} if seen.sample else set()
    why_not = [(gpu, _why_not(node.config, gpu, listed)) for gpu in gpus]
    known = [gpu for gpu, why in why_not if not why]
    order = _core_order(look)
    return Machine(
        name=node.name,
        host=look.host.partition(".")[0],
        address=_address(node.config, look),
        cpus=host.cores,
        layout=_layout(look, host.cores),
        memory_mib=host.memory_mib,
        labels=node.config.labels,
        fabric=node.config.fabric or "",
        gpus=tuple(_gpu(gpu, known, look, host, seen.topology, order) for gpu in known),
        left_out=tuple(f"GPU {gpu.reading.number}: {why}" for gpu, why in why_not if why),
    )


def _why_not(config: NodeConfig, gpu: Gpu, listed: Collection[str]) -> str:
    if gpu.reading.uuid not in listed:
        return "the driver no longer lists it"
    if gpu.reading.index in config.exclude_gpus:
        return "exclude_gpus in the inventory"
    if gpu.reading.vendor not in VENDORS:
        return f"Slurm does not know GPUs of {gpu.reading.vendor or 'an unknown vendor'}"
    return ""


def _address(config: NodeConfig, look: Look) -> str:
    if config.fabric_address:
        return config.fabric_address
    try:
        return "" if ip_address(look.address).is_loopback else look.address
    except ValueError:
        return ""


def _layout(look: Look, cpus: int) -> tuple[int, int, int] | None:
    """Sockets, cores per socket and threads per core, where all sockets and cores are alike."""
    threads = Counter(look.cores.values())
    cores = Counter(socket for socket, _ in threads)
    if len(look.cores) != cpus or len({*threads.values()}) != 1 or len({*cores.values()}) != 1:
        return None
    return len(cores), next(iter(cores.values())), next(iter(threads.values()))


def _core_order(look: Look) -> dict[int, int]:
    """The number of the core of each CPU as Slurm counts: one socket after the other."""
    order = {core: number for number, core in enumerate(sorted({*look.cores.values()}))}
    return {cpu: order[core] for cpu, core in look.cores.items()}


def _gpu(
    gpu: Gpu, known: Sequence[Gpu], look: Look, host: HostFacts, topology: GpuTopology | None, order: Mapping[int, int]
) -> SlurmGpu:
    reading = gpu.reading
    bus, vendor = reading.pci_bus_id or "", VENDORS[reading.vendor]
    file = look.devices.get(bus, "")
    file = file if file.startswith(vendor.device) else ""
    guessed = not file and vendor.numbered
    return SlurmGpu(
        number=str(reading.number),
        vendor=reading.vendor,
        model=reading.name or "",
        memory_mib=reading.memory_total_mib,
        profile=reading.profile or ("part" if reading.parent else ""),
        file=f"{vendor.device}{reading.index}" if guessed else file,
        guessed=guessed,
        cores=_near(bus, reading.index, host, topology, order),
        links=_links(reading.index, known, topology),
    )


def _near(bus: str, index: int, host: HostFacts, topology: GpuTopology | None, order: Mapping[int, int]) -> str:
    """The cores of its NUMA node, as ranges; empty if all cores are near it."""
    by_driver = topology.numa.get(index) if topology else None
    numa = next((each for each in host.numa if bus in each.gpus), None)
    numa = numa or next((each for each in host.numa if each.id == by_driver), None)
    if numa is None or len(host.numa) < 2 or not order:
        return ""
    return _ranges(sorted({number for cpu, number in order.items() if _has(numa.cpus, cpu)}))


def _has(cpuset: str, cpu: int) -> bool:
    """Whether a CPU is one of `0-15,32-47`."""
    parts = (part.partition("-") for part in cpuset.split(","))
    return any(int(first) <= cpu <= int(last or first) for first, _, last in parts)


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3,8` of 0, 1, 2, 3, 8."""
    runs = defaultdict[int, list[int]](list)
    for place, number in enumerate(numbers):
        runs[number - place].append(number)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs.values())


def _links(index: int, known: Sequence[Gpu], topology: GpuTopology | None) -> tuple[int, ...]:
    """How near the GPUs of the node are; nothing if all are alike."""
    indices = [gpu.reading.index for gpu in known]
    if topology is None or len(set(indices)) != len(indices):
        return ()
    pairs = {topology.closeness(one, other) for one in indices for other in indices if one < other}
    if len(pairs) < 2:
        return ()
    return tuple(-1 if other == index else topology.closeness(index, other) for other in indices)
