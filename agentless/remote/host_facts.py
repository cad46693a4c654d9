"""The machine itself: cores, memory, which CPUs and GPUs are near each other, and cards with and without a driver.

Read from /sys and /proc, with shell built-ins where hundreds of files are looked at. Output, line by line:

    online 0-63                   /sys/devices/system/cpu/online, else `cores 64` from nproc
    memory 528280772              KiB, MemTotal in /proc/meminfo
    node 0 0-15,32-47             a NUMA node and its CPUs; memory-only nodes have none
    local 0 264140386             KiB, MemTotal in that node's meminfo
    gpu 0000:3b:00.0 0            a GPU and its NUMA node; -1: the firmware names none
    removable 0000:3b:00.0        a GPU in an enclosure that is plugged in, as by Thunderbolt
    card 0000:3b:00.0 0x10de nvidia   a card and its driver in the kernel, if it has one
    system debian                 ID in /etc/os-release, then ID_LIKE
    wsl                           the kernel is that of WSL2, then what is there of Windows:
    wsl gpu                       /dev/dxg
    wsl nvidia                    its nvidia-smi for WSL2; `wsl amd` for a driver of AMD
    wsl other /usr/bin/nvidia-smi a file of a Linux driver
    jetson NVIDIA Jetson Orin     /proc/device-tree/model of a Tegra
    slurmd yes                    the daemon of Slurm runs there; no line: not known, processes of others are hidden
    boot 0f5e…                    /proc/sys/kernel/random/boot_id

The files are described in the kernel's Documentation/ABI (sysfs-devices-system-cpu, sysfs-devices-node, sysfs-bus-pci).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from agentless.model.command import Result, Section
from agentless.model.nodes.gpu import pci_bus_id
from agentless.model.nodes.node import HostFacts, NumaNode, PciCard, WslFacts, count_cpus
from agentless.model.text import cut, printable
from agentless.render import Renderer
from agentless.rules.nodes.cards import CARDS

_LINES = 4096
"""Lines of the answer: two for each of 1,024 NUMA nodes, as many as a kernel can have (CONFIG_NODES_SHIFT), or so."""
_LINE = 4096
"""Characters of a line: the CPUs of a node with 1,000 of them, every other one left out."""
MOST_CORES = 8192
"""As many as a kernel for x86 can be built for (CONFIG_NR_CPUS)."""
MOST_MEMORY_MIB = 64 << 20
"""64 TiB, as much as four levels of pages can map."""
_CARDS = 256
_NAMES = 8
_BOARD = 80
_PATH = re.compile(r"/[A-Za-z0-9._/-]{1,200}")
_WORD = re.compile(r"[A-Za-z0-9._-]{1,32}")
_BOOT = re.compile(r"[0-9a-f-]{36}")
_NUMBER = re.compile(r"[0-9]{1,12}")
_CPUS = re.compile(r"[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*")


def sections(renderer: Renderer, gpus: Sequence[str]) -> tuple[Section, ...]:
    """The section to run on the node; it needs no root. `gpus` are the PCI functions that are GPUs: `Probe.pci`."""
    script = renderer.script("host-facts.sh.j2", gpus=" ".join(gpus), cards=" ".join(CARDS))
    return (Section("host", script),)


def parse(sections: Mapping[str, Result]) -> HostFacts:
    """The facts in the answer. What is missing, too long or makes no sense is None or left out, never an exception."""
    answer = sections.get("host")
    cores: int | None = None
    memory_mib: int | None = None
    boot: str | None = None
    cpus: dict[int, str] = {}
    memory: dict[int, int] = {}
    gpus: dict[str, list[str]] = defaultdict(list)
    cards: list[PciCard] = []
    removable: list[str] = []
    system: list[str] = []
    wsl: list[list[str]] = []
    jetson = ""
    slurmd: bool | None = None
    lines = answer.out.split("\n") if answer else []
    for line in lines if len(lines) <= _LINES else ():
        match line.split() if len(line) <= _LINE else ():
            case ["online", online] if _CPUS.fullmatch(online):
                cores = count_cpus(online)
            case ["cores", number] if _NUMBER.fullmatch(number):
                cores = int(number)
            case ["memory", kib] if _NUMBER.fullmatch(kib):
                memory_mib = int(kib) // 1024
            case ["node", number, cpulist] if _NUMBER.fullmatch(number) and _CPUS.fullmatch(cpulist):
                cpus[int(number)] = cpulist
            case ["local", number, kib] if _NUMBER.fullmatch(number) and _NUMBER.fullmatch(kib):
                memory[int(number)] = int(kib) // 1024
            case ["boot", identity] if _BOOT.fullmatch(identity):
                boot = identity
            case ["gpu", address, number] if bus := pci_bus_id(address):
                gpus[number].append(bus)
            case ["removable", address] if bus := pci_bus_id(address):
                removable.append(bus)
            case ["card", address, maker, *driver] if bus := pci_bus_id(address):
                cards.append(PciCard(bus, maker, driver[0] if driver and _WORD.fullmatch(driver[0]) else None))
            case ["wsl", *words]:
                wsl.append(words)
            case ["jetson", *words]:
                jetson = cut(printable(" ".join(words)), _BOARD) or "Tegra"
            case ["slurmd", "yes" | "no" as runs]:
                slurmd = runs == "yes"
            case ["system", *names]:
                system += [name for word in names if _WORD.fullmatch(name := word.strip("\"'"))]
    numa = tuple(NumaNode(n, cpus[n], tuple(gpus[str(n)]), memory.get(n) or None) for n in sorted(cpus))
    return HostFacts(
        _at_most(cores, MOST_CORES),
        _at_most(memory_mib, MOST_MEMORY_MIB),
        numa,
        boot,
        tuple(cards[:_CARDS]),
        tuple(system[:_NAMES]),
        _wsl(wsl) if wsl else None,
        jetson,
        tuple(removable[:_CARDS]),
        slurmd,
    )


def _wsl(lines: Sequence[Sequence[str]]) -> WslFacts:
    there = {words[0] for words in lines if words}
    others = [words[1] for words in lines if len(words) == 2 and words[0] == "other" and _PATH.fullmatch(words[1])]
    return WslFacts("gpu" in there, "nvidia" in there, "amd" in there, tuple(others[:_NAMES]))


def _at_most(number: int | None, most: int) -> int | None:
    """The number, None if it is 0 or more than there can be."""
    return number if number and number <= most else None
