"""AMD's GPUs as `doctor` wants to know them.

Output of `amd-checkup.sh.j2`, line by line:

    wsl                               the kernel is that of WSL2
    module                            the module amdgpu is loaded
    pci 0000:83:00.0 amdgpu           a GPU on the bus, and which module drives it
    dev /dev/kfd root:render:660 open a device: its owner, group and mode, and whether the login may use it
    group render 109                  a group that may use them, by its number
    user alice 1000 alice,docker      the login with its groups
    render AMD-79ccd55167a2124a renderD128     a card and its render node
    kfd 128 33536                     a GPU of the compute driver: its render node, and its place
    tool amd-smi                      a program that is there; `rocm` is the folder /opt/rocm

A value that is not known is no reason to complain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.gpus.values import whole
from agentless.model.command import Result, Section
from agentless.model.nodes.gpu import MOST_GPUS, pci_bus_id
from agentless.model.text import printable
from agentless.ports import ScriptRenderer

SECTION = "amd.checkup"
ANSWER = 64 << 10
_LINES = 2000
_WORD = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_DEVICE = re.compile(r"/dev/(?:kfd|dri/renderD[0-9]{1,4})")
_RENDER = re.compile(r"renderD([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class Device:
    """A device file. `is_open`: the login may read and write it."""

    owner: str
    group: str
    mode: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class AmdCheckup:
    """What was found. `bus` has the module that drives each card, empty if none; `renders` are by the id of a card.

    `parts` has the render nodes of all GPUs of the compute driver, by the last bits of their place.
    """

    wsl: bool = False
    module: bool = False
    bus: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    user: str = ""
    is_root: bool = False
    member: frozenset[str] = frozenset()
    renders: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[tuple[int, int], ...] = ()
    tools: tuple[str, ...] = ()


def sections(renderer: ScriptRenderer) -> tuple[Section, ...]:
    """The section to run on the node; it needs no root."""
    return (Section(SECTION, renderer.script("amd-checkup.sh.j2"), most=ANSWER),)


def parse(sections: Mapping[str, Result]) -> AmdCheckup:
    """What the answer says. What makes no sense is left out."""
    answer = sections.get(SECTION)
    found: dict[str, list[list[str]]] = defaultdict(list)
    for line in answer.out.split("\n")[:_LINES] if answer else ():
        key, *values = printable(line[:2000]).split(" ")
        found[key].append(values)
    bus, devices, groups, renders = {}, {}, {}, {}
    for cells in found["pci"][:MOST_GPUS]:
        if len(cells) == 2 and (known := pci_bus_id(cells[0])):
            bus[known] = cells[1] if _WORD.fullmatch(cells[1]) else ""
    for cells in found["dev"][: MOST_GPUS * 8]:
        rights = cells[1].split(":") if len(cells) == 3 else []
        if len(rights) == 3 and _DEVICE.fullmatch(cells[0]) and all(map(_WORD.fullmatch, rights)):
            devices[cells[0]] = Device(rights[0], rights[1], rights[2], cells[2] == "open")
    for cells in found["group"][:2]:
        if len(cells) == 2 and (number := whole(cells[1])) is not None:
            groups[cells[0]] = number
    for cells in found["render"][:MOST_GPUS]:
        if len(cells) == 2 and (match := _RENDER.fullmatch(cells[1])):
            renders[cells[0][:80]] = int(match[1])
    parts = [(whole(cells[0]), whole(cells[1])) for cells in found["kfd"][: MOST_GPUS * 8] if len(cells) == 2]
    user = next((cells for cells in found["user"] if len(cells) == 3), ["", "", ""])
    return AmdCheckup(
        wsl="wsl" in found,
        module="module" in found,
        bus=bus,
        devices=devices,
        groups=groups,
        user=user[0] if _WORD.fullmatch(user[0]) else "",
        is_root=user[1] == "0",
        member=frozenset(user[2].split(",")),
        renders=renders,
        parts=tuple((minor, place) for minor, place in parts if minor is not None and place is not None),
        tools=tuple(cells[0] for cells in found["tool"] if cells in (["amd-smi"], ["rocm-smi"], ["rocm"])),
    )
