"""AMD GPUs and who uses them: from /sys, and from amd-smi, else rocm-smi, where /sys lacks something.

One section. Its output, line by line:

    @amd none             there is neither the module amdgpu nor /sys/class/kfd: nothing follows
    driver 6.8.5          what `sysfs` describes, up to `@whole`
    @tool static          an answer of a tool: `list`, `static`, `metric` and `process` of amd-smi; `rocm` and `pids` of
    >[{"gpu": 0, …        rocm-smi; each of its lines
    @root                 the tools were asked as root
    @owner 4711 1000 alice     who runs a process, see `owners`
    @amd 0                nothing was cut off; `hung` if /sys did not answer

A GPU of the compute driver (kfd) is a device. They are numbered in the order of its nodes, which is HIP's. A card that
is divided into partitions is followed by these. Graphics that are part of a processor have little memory of their own
and are left out. A card without a kfd node cannot compute: it is listed, and given to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agentless.gpus.amd import amd_smi, rocm_smi, sysfs
from agentless.gpus.amd.card import VENDOR, Card, part_id
from agentless.gpus.amd.sysfs import KfdNode, Sysfs
from agentless.gpus.owners import Owner, owners
from agentless.model.command import SECTION, Result, Section
from agentless.model.nodes.device import DeviceKind
from agentless.model.nodes.gpu import MOST_GPUS, GpuProcess, GpuReading, GpuSample
from agentless.model.text import program_of
from agentless.ports import ScriptRenderer

ANSWER = 256 << 10
"""Bytes of what /sys or a tool says. rocm-smi prints 3 KB for each card, amd-smi 10 KB."""
PROCESSES = 1024
_LINES = 60_000
_LINE = 4000
"""Lines of the section, and characters of a line; a tool may print its JSON in one."""
_OWN = 4096
"""MiB: graphics in a processor have less memory of their own, except in those that are made to compute."""

LISTER = "amd-smi list"
_CUT_OFF = "the AMD GPU sample was cut off; agentless retries with the next sample"
_HUNG = "the AMD driver did not answer within 8 s: it hangs; check dmesg on the node, and reboot it"
_TOO_LONG = f"the AMD driver or amd-smi prints more than {ANSWER >> 10} KiB; check amd-smi on the node"
_NO_PROCESSES = (
    "the processes on AMD GPUs cannot be read in /sys/class/kfd/kfd/proc; install amd-smi or rocm-smi on the node, or "
    "a newer kernel"
)
_UNCLEAR = (
    "/sys/class/kfd/kfd/proc does not say which AMD GPUs each process uses; install Linux 5.8 or newer on the node, or "
    "the amdgpu driver of ROCm (amdgpu-dkms)"
)
_NOT_ROOT = (
    "amd-smi and rocm-smi show all processes to root only, and /sys/class/kfd/kfd/proc cannot be read; install Linux "
    "5.8 or newer on the node, or log in there as root"
)
_NO_KFD = "there is no /dev/kfd for it, so nothing can compute on it (install the amdgpu driver of ROCm: amdgpu-dkms)"
_PARTLY = (
    "/sys/class/kfd/kfd/topology does not show all AMD GPUs, so nobody can tell which are in use; check the login's "
    "rights to read it, and dmesg on the node"
)
_UNKNOWN = (
    "a process uses a GPU that is not in /sys/class/kfd/kfd/topology, so nobody can tell which; agentless retries with "
    "the next sample"
)
_PARTITIONS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
"""How many there are in these modes. In CPX, it depends on the card."""
_TWICE = "the AMD driver lists a GPU twice, so nobody can tell which is which; check dmesg on the node, and reboot it"
_MODE = re.compile(r"[a-z]{1,8}")
_NOT_IN_KFD = "/dev/kfd does not have it, so nothing can compute on it (check dmesg on the node for kfd)"
_NO_RENDER = "/sys/class/drm has no render node for it (check dmesg on the node)"


@dataclass(frozen=True, slots=True)
class _Found:
    """A reading, and by which number the compute driver calls it; None for one that it does not know."""

    reading: GpuReading
    gpu: int | None


def sections(renderer: ScriptRenderer, *, links: bool) -> Section:
    """The section to run on the node; no root is needed. `links`: also ask how GPUs are joined."""
    script = renderer.script(
        "amd-probe.sh.j2",
        sysfs=renderer.script("amd-sysfs.sh.j2", links=links),
        answer=ANSWER,
        processes=PROCESSES,
    )
    return Section(VENDOR, script)


def parse(sections: Mapping[str, Result]) -> GpuSample:
    """The sample in the answer, `error` in one sentence. If a process may be missing, processes are unknown."""
    answer = sections.get(VENDOR)
    if answer is None:
        return GpuSample((), None, _CUT_OFF)
    if len(answer.stdout) >= SECTION or answer.stdout.count(b"\n") > _LINES:
        return GpuSample((), None, _TOO_LONG)
    lines = lines_of(answer)
    if "@amd none" in lines:
        return GpuSample()
    own, tools, rest = _divided(lines)
    found = sysfs.parse(own)
    if "@amd hung" in lines:
        return GpuSample((), None, _HUNG, hung=True, lister=LISTER)
    if not found.whole or "@amd 0" not in rest:
        return GpuSample((), None, _CUT_OFF)
    cards, said = _cards(found, tools)
    devices = _devices(found, cards)
    if len(devices) > MOST_GPUS * 8:
        return GpuSample((), None, _TOO_LONG)
    gpus = tuple(each.reading for each in devices)
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        return GpuSample((), None, _TWICE)
    if hidden := _hidden(found):
        return GpuSample(gpus, None, hidden, lister=LISTER)
    as_root = "@root" in rest
    processes = _processes(found, devices, owners(rest), tools, as_root=as_root)
    why = _UNCLEAR if found.unclear else _NOT_ROOT if tools and not as_root else _NO_PROCESSES
    error = None if processes is not None or not gpus else said or why
    return GpuSample(_explained(gpus, processes or ()), processes if gpus else (), error, lister=LISTER if gpus else "")


def lines_of(answer: Result) -> list[str]:
    """The lines of the section."""
    return [line.rstrip("\r")[:_LINE] if line[:1] != ">" else line for line in answer.out.split("\n")]


def _divided(lines: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """The lines of /sys, the answers of tools, all others."""
    own: list[str] = []
    tools: dict[str, list[str]] = {}
    rest: list[str] = []
    into, at = own, ""
    for line in lines:
        if line.startswith("@tool "):
            at = line.removeprefix("@tool ")
            tools[at] = []
        elif line.startswith(">") and at:
            tools[at].append(line[1:])
        else:
            into.append(line)
            if line == "@whole":
                into = rest
    return own, {name: "\n".join(text) for name, text in tools.items()}, rest


def _cards(found: Sysfs, tools: Mapping[str, str]) -> tuple[dict[tuple[str, int], Card], str | None]:
    """All cards by place, with what tools know of them, and what is wrong with the tools' answers."""
    known = dict[tuple[str, int], Card]()
    if "static" in tools or "list" in tools:
        known = amd_smi.cards(tools.get("list", ""), tools.get("static", ""), tools.get("metric", ""))
        tool = "amd-smi"
    elif "rocm" in tools:
        known = {(bus, 0): card for bus, card in rocm_smi.cards(tools["rocm"]).items()}
        tool = "rocm-smi"
    else:
        return {(bus, 0): card for bus, card in found.cards.items()}, None
    known = {_placed(place, found): card for place, card in known.items()}
    said = None if known else f"{tool} prints no JSON that can be read; run it on the node to see why"
    for bus, card in found.cards.items():
        known[bus, 0] = card.filled(known.get((bus, 0)))
    return known, said


def _placed(place: tuple[str, int], found: Sysfs) -> tuple[str, int]:
    """A place that a tool names: a function of a card is a partition, also where the tool does not say so."""
    bus, part = place
    card = f"{bus[:-1]}0"
    is_part = not part and bus not in found.ids and card in found.ids
    return (card, int(bus[-1])) if is_part else place


def _devices(found: Sysfs, cards: Mapping[tuple[str, int], Card]) -> list[_Found]:
    """The readings in HIP's order, parts behind their cards, with what the compute driver calls each."""
    by_bus: dict[str, list[KfdNode]] = {}
    for node in found.nodes:
        by_bus.setdefault(node.bus, []).append(node)
    unplaced = {bus: card for (bus, part), card in cards.items() if not part and bus not in by_bus}
    order = [*by_bus, *sorted(unplaced, key=lambda bus: (unplaced[bus].node or 0, bus))]
    devices: list[_Found] = []
    index = 0
    for bus in order:
        card = cards.get((bus, 0), Card(driver=found.driver))
        if card.total is not None and card.total < _OWN:
            continue
        parts = sorted(by_bus.get(bus, ()), key=lambda node: node.part)
        whole = _reading(card, index, found.ids.get(bus) or _unlisted(bus, card), bus)
        if bus not in found.ids:
            whole = replace(whole, barred=_NO_RENDER)
        elif not parts:
            whole = replace(whole, barred=_NOT_IN_KFD if found.kfd else _NO_KFD)
        devices.append(_Found(whole, parts[0].gpu if len(parts) == 1 else None))
        if len(parts) > 1:
            devices += [_part(whole, card, node, cards.get((bus, node.part)), found) for node in parts]
        index += 1
    return devices


def _unlisted(bus: str, card: Card) -> str:
    """The id of a card that only a tool knows of."""
    return f"AMD-{card.unique or bus.translate({ord(':'): None, ord('.'): None})}"


def _reading(card: Card, index: int, uuid: str, bus: str, kind: DeviceKind = "gpu") -> GpuReading:
    return GpuReading(
        index,
        uuid,
        card.name,
        card.driver,
        bus,
        memory_total_mib=card.total,
        memory_used_mib=card.used if card.total is None or card.used is None else min(card.used, card.total),
        utilization_pct=card.busy,
        memory_utilization_pct=card.memory_busy,
        temperature_c=card.celsius,
        power_w=card.watts,
        power_limit_w=card.watts_limit,
        fan_pct=card.fan,
        clock_sm_mhz=card.mhz,
        clock_memory_mhz=card.memory_mhz,
        ecc_uncorrected=card.uncorrected,
        vendor=VENDOR,
        kind=kind,
    )


def _part(whole: GpuReading, card: Card, node: KfdNode, said: Card | None, found: Sysfs) -> _Found:
    """A partition: its memory is its own, and heat and power are those of the card.

    The driver has the used memory of the card only. What processes have on the partition is the least it can be.
    """
    mode = (card.compute or "").lower()
    mode = mode if _MODE.fullmatch(mode) else "part"
    used = None
    if found.processes is not None:
        used = sum(process.memory.get(node.gpu, 0) for process in found.processes)
    part = said or Card()
    total = node.bank or part.total
    reading = replace(
        whole,
        uuid=part_id(whole.uuid, node.part, mode),
        memory_total_mib=total,
        memory_used_mib=used if total is None or used is None else min(used, total),
        utilization_pct=part.busy,
        memory_utilization_pct=None,
        power_w=None,
        power_limit_w=None,
        kind="partition",
        parent=whole.uuid,
        part=node.part,
        profile=f"{mode}/{card.memory.lower()}" if card.memory else mode,
    )
    return _Found(reading, node.gpu)


def _hidden(found: Sysfs) -> str:
    """Why processes on GPUs may be missing, empty if none can be: the compute driver does not show all of its GPUs."""
    parts: dict[str, list[int]] = {}
    for node in found.nodes:
        parts.setdefault(node.bus, []).append(node.part)
    for bus, numbers in parts.items():
        expected = _PARTITIONS.get(found.cards.get(bus, Card()).compute or "", len(numbers))
        if sorted(numbers) != list(range(expected)):
            return _PARTLY
    if found.partial:
        return _PARTLY
    known = {node.gpu for node in found.nodes}
    used = {gpu for process in found.processes or () for gpu in process.gpus}
    return "" if used <= known else _UNKNOWN


def _processes(
    found: Sysfs, devices: Sequence[_Found], who: Mapping[str, Owner], tools: Mapping[str, str], *, as_root: bool
) -> tuple[GpuProcess, ...] | None:
    """Who uses the GPUs; None if any may be missing. What is idle to others than root may not be."""
    if found.unclear:
        return None
    if found.processes is not None and len(found.processes) < PROCESSES:
        by_gpu = {each.gpu: each.reading.uuid for each in devices if each.gpu is not None}
        return tuple(
            _process(by_gpu[gpu], process.pid, process.memory.get(gpu), None, who)
            for process in found.processes
            for gpu in process.gpus
            if gpu in by_gpu
        )
    if "process" in tools:
        listed = amd_smi.processes(tools.get("list", ""), tools["process"])
        if listed is None:
            return None
        by_place = {_place(each.reading): each.reading.uuid for each in devices}
        on = [(_placed(each.place, found), each) for each in listed]
        used = {place for place, _ in on}
        if not used <= by_place.keys() | {(bus, 0) for bus in found.ids} or not (as_root or by_place.keys() <= used):
            return None
        return tuple(
            _process(by_place[place], each.pid, each.memory, each.name, who) for place, each in on if place in by_place
        )
    running = rocm_smi.pids(tools["pids"]) if "pids" in tools else None
    if running is None or not (running or as_root):
        return None
    # It does not say on which GPU each is, so all are in use.
    return tuple(
        _process(each.reading.uuid, pid, None, name, who) for each in devices for pid, name in running[:PROCESSES]
    )


def _explained(gpus: Sequence[GpuReading], processes: Sequence[GpuProcess]) -> tuple[GpuReading, ...]:
    """The GPUs, with the memory that is in use without a process. Vulkan and OpenGL do not use the compute driver."""
    used = {gpu.uuid: gpu.memory_used_mib for gpu in gpus if gpu.parent is None}
    cards = {gpu.uuid: gpu.gpu for gpu in gpus}
    for process in processes:
        card = cards[process.gpu_uuid]
        before = used.get(card)
        used[card] = None if before is None or process.memory_mib is None else max(0, before - process.memory_mib)
    return tuple(replace(gpu, unexplained_mib=used.get(gpu.gpu)) for gpu in gpus)


def _place(reading: GpuReading) -> tuple[str, int]:
    return reading.pci_bus_id or "", reading.part or 0


def _process(uuid: str, pid: int, memory: int | None, name: str | None, who: Mapping[str, Owner]) -> GpuProcess:
    owner = who.get(str(pid), Owner())
    return GpuProcess(
        uuid, pid, name or program_of(owner.command or "") or None, memory, owner.user, owner.command, owner.container
    )


def joined(lines: Iterable[str]) -> tuple[Sysfs, list[_Found]]:
    """What /sys says, and its devices: for the topology."""
    found = sysfs.parse(_divided(list(lines))[0])
    return found, _devices(found, {(bus, 0): card for bus, card in found.cards.items()})
