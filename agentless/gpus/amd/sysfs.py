"""AMD cards and who uses them, as the kernel's amdgpu driver has them in /sys.

`amd-sysfs.sh.j2` prints, line by line:

    driver 6.8.5                        the version of the module, or of the kernel if it came with it
    kfd                                 there is /sys/class/kfd/kfd, which is what computes
    @node 2 53458                       a GPU of /sys/class/kfd/kfd/topology/nodes: number, `gpu_id`; `?` if unreadable
    location_id 33536                   a line of its `properties`; a partition has its number in bits 28 to 31
    bank 34342961152                    bytes of a bank of its memory
    link 3 11 15                        a link of it: to which node, its type, its weight
    @card renderD128 0000:83:00.0       a render node of /sys/class/drm, and its card's PCI address
    id AMD-79ccd55167a2124a             the card's id, see `card`
    mem_info_vram_total 34342961152     a file of the card's folder, of its hwmon, or `ue` of a file in ras/
    @part renderD129                    a render node that is a partition's, and no card's
    @process 4711                       a process of /sys/class/kfd/kfd/proc
    vram 53458 1048576                  bytes that it has on a GPU, by `gpu_id`; `?` if that cannot be read
    queue 53458                         it has a queue there
    ended                               it has ended meanwhile
    @processes                          these were all processes
    @whole                              nothing was cut off

The files are those of Linux 5.4 to 6.17 (Documentation/gpu/amdgpu/driver-misc.rst, thermal.rst and ras.rst,
drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_process.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentless.gpus.amd import names
from agentless.gpus.amd.card import Card, name_of
from agentless.gpus.values import CELSIUS, MHZ, MIB, WATTS, whole
from agentless.model.nodes.gpu import MOST_GPUS, pci_bus_id
from agentless.model.text import cut, printable

_ID = re.compile(r"AMD-[0-9a-f]{8}[0-9a-f-]{1,24}")
_WORD = re.compile(r"[A-Za-z0-9]{1,16}")
_MOST_NODES = MOST_GPUS * 8
_MOST_LINKS = 512
_EDGE = ("edge", "junction", "")
"""The sensors by which a card is judged, the best first: data centre cards have no sensor at their edge."""


@dataclass(slots=True)
class KfdNode:
    """A GPU of the compute driver. `bus` and `part` say where it is, `bank` is its memory in MiB."""

    node: int
    gpu: int
    bus: str
    part: int
    bank: int
    links: list[tuple[int, int, int]]


@dataclass(slots=True)
class KfdProcess:
    """A process that has opened the compute driver. `memory` in MiB and `queues` are by `gpu_id`."""

    pid: int
    memory: dict[int, int] = field(default_factory=dict)
    queues: set[int] = field(default_factory=set)

    @property
    def gpus(self) -> list[int]:
        """The GPUs that it uses. Every process of ROCm has opened all that it may have."""
        return sorted({gpu for gpu, memory in self.memory.items() if memory} | self.queues)


@dataclass(slots=True)
class Sysfs:
    """All of it. `cards` and `ids` are by PCI address. `processes` is None if they cannot be read.

    `partial`: what is said of a GPU of the compute driver makes no sense. `unclear`: nor is what a process uses.
    """

    driver: str | None = None
    kfd: bool = False
    nodes: list[KfdNode] = field(default_factory=list)
    cards: dict[str, Card] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    processes: list[KfdProcess] | None = None
    whole: bool = False
    partial: bool = False
    unclear: bool = False


def parse(lines: Iterable[str]) -> Sysfs:
    """What the lines say. What makes no sense is left out."""
    found, processes, readable, complete = Sysfs(), list[KfdProcess](), True, False
    for head, body in _blocks(lines):
        kind, _, value = head.partition(" ")
        match kind:
            case "":
                found.driver = next((name_of(text) for key, text in body if key == "driver"), None)
                found.kfd = ("kfd", "") in body
            case "@node" if len(found.nodes) < _MOST_NODES and (node := _node(value, body)):
                found.nodes.append(node)
            case "@node":
                found.partial = True
            case "@card" if len(found.cards) < MOST_GPUS:
                bus, values = pci_bus_id(value.partition(" ")[2]), dict(reversed(body))
                if bus and bus not in found.cards and _ID.fullmatch(values.get("id", "")):
                    card = _card(values, [text for key, text in body if key == "ue"])
                    found.cards[bus], found.ids[bus] = replace(card, driver=found.driver), values["id"]
            case "@process" if ("ended", "") in body:
                pass
            case "@process" if pid := whole(value):
                processes.append(process := KfdProcess(pid))
                readable &= all(_use(process, key, text) for key, text in body)
                # Linux before 5.8 does not say which GPUs it has.
                readable &= any(key == "vram" for key, _ in body)
            case "@processes":
                complete = True
            case "@whole":
                found.whole = True
    found.nodes.sort(key=lambda each: each.node)
    found.processes = processes if complete and readable else None
    found.unclear = not readable
    return found


def _blocks(lines: Iterable[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The lines that begin with @, each with those up to the next, as key and value. The first has no such line."""
    head, body = "", list[tuple[str, str]]()
    for line in lines:
        if line.startswith("@"):
            yield head, body
            head, body = line, []
        else:
            key, _, value = line.partition(" ")
            body.append((key, value))
    yield head, body


def _use(process: KfdProcess, key: str, value: str) -> bool:
    """Note that a process uses a GPU; False if the line cannot be read."""
    gpu, _, amount = value.partition(" ")
    number = whole(gpu)
    if key == "queue":
        if number is not None:
            process.queues.add(number)
        return number is not None
    size = whole(amount)
    if number is None or size is None:
        return False
    process.memory[number] = (size + (1 << 20) - 1) >> 20
    return True


def _node(value: str, body: Sequence[tuple[str, str]]) -> KfdNode | None:
    """A GPU of the compute driver; None if it cannot be told where it is."""
    number, _, gpu = value.partition(" ")
    at, known, values = whole(number), whole(gpu), dict(reversed(body))
    location, domain = whole(values.get("location_id", "")), whole(values.get("domain", "0"), 0xFFFFFFFF)
    if at is None or not known or location is None or domain is None:
        return None
    bus = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
    bank = sum(min(whole(text) or 0, MIB << 20) >> 20 for key, text in body if key == "bank")
    cells = [[whole(cell) for cell in text.split(" ")] for key, text in body if key == "link"]
    links = [[cell for cell in link if cell is not None] for link in cells]
    return KfdNode(
        at,
        known,
        bus,
        location >> 28 & 0xF,
        bank,
        [(link[0], link[1], link[2]) for link in links[:_MOST_LINKS] if len(link) == 3],
    )


def _card(values: Mapping[str, str], errors: Sequence[str]) -> Card:
    """A card by the files of its folder."""
    text = values.get
    celsius = next(
        (value for each in _EDGE if (value := _part(text(f"temp.{each}", ""), 1000, CELSIUS)) is not None), None
    )
    watts = _micro(text("power1_average", "") or text("power1_input", ""))
    pwm, most = whole(text("pwm1", "")), whole(text("pwm1_max", "255"))
    numa = whole(text("numa_node", ""), 1024)
    return Card(
        name=name_of(text("product_name", "")) or names.name(text("device", ""), text("revision", "")),
        total=_part(text("mem_info_vram_total", ""), 1 << 20, MIB),
        used=_part(text("mem_info_vram_used", ""), 1 << 20, MIB),
        busy=whole(text("gpu_busy_percent", ""), 100),
        memory_busy=whole(text("mem_busy_percent", ""), 100),
        celsius=celsius,
        watts=watts,
        watts_limit=_micro(text("power1_cap", "")),
        fan=min(100, round(100 * pwm / most)) if pwm is not None and most else None,
        mhz=_part(text("freq1_input", ""), 1_000_000, MHZ),
        memory_mhz=_part(text("freq2_input", ""), 1_000_000, MHZ),
        uncorrected=sum(whole(each) or 0 for each in errors) if errors else None,
        numa=numa,
        compute=_word(text("current_compute_partition", "")),
        memory=_word(text("current_memory_partition", "")),
    )


def _part(text: str, of: int, most: int) -> int | None:
    value = whole(text)
    return None if value is None or value // of > most else value // of


def _micro(text: str) -> float | None:
    value = whole(text)
    return None if value is None or value > WATTS * 1_000_000 else value / 1_000_000


def _word(text: str) -> str | None:
    return cut(printable(text), 16) if _WORD.fullmatch(text) else None
