"""NVIDIA's GPUs as `doctor` wants to know them.

Output of `nvidia-checkup.sh.j2`, line by line:

    module 550.54.15              version of the loaded kernel module
    nouveau                       that module is loaded
    pci 0000:3b:00.0 nvidia       a GPU on the bus, and which module drives it
    secureboot                    the firmware loads signed code only
    minor GPU-5d1c… 0             a GPU and the number of its /dev/nvidiaN
    dev nvidia0
    mode auto                     the mode of NVIDIA's container runtime
    cdi /etc/cdi/nvidia.yaml      a file that describes GPUs to engines, and the names in it (`cdiname`)
    ask1 GPU-5d1c…, Enabled, …    rows of nvidia-smi, by the place of the question; an old driver refuses one

Here and in `checks.py` a value that is not known is no reason to complain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.command import Result, Section
from agentless.model.nodes.gpu import MOST_GPUS, pci_bus_id
from agentless.model.text import cut, printable
from agentless.ports import ScriptRenderer

SECTION = "nvidia.checkup"
ANSWER = 64 << 10
_LINES = 2000
_PERSISTENCE = "uuid,persistence_mode"
_SLOWED = (
    "uuid,clocks_throttle_reasons.hw_thermal_slowdown,clocks_throttle_reasons.hw_power_brake_slowdown,"
    "clocks_throttle_reasons.sw_thermal_slowdown"
)
_ECC = "uuid,ecc.mode.current,ecc.errors.uncorrected.aggregate.total"
QUESTIONS = (_PERSISTENCE, _SLOWED, _ECC)
_UUID = re.compile(r"[A-Za-z0-9-]{1,80}")
_VERSION = re.compile(r"[0-9.]{1,32}")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class NvidiaCheckup:
    """What was found. `bus` has the module that drives each GPU, empty if none; `minors` are by UUID.

    `persistence` and `ecc` are by UUID, as the driver says them. `slowed` are GPUs, each with the reason.
    """

    module: str = ""
    nouveau: bool = False
    secure_boot: bool = False
    bus: Mapping[str, str] = field(default_factory=dict)
    minors: Mapping[str, int] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()
    mode: str = ""
    cdi_files: tuple[str, ...] = ()
    cdi_names: frozenset[str] = frozenset()
    persistence: Mapping[str, bool] = field(default_factory=dict)
    slowed: Mapping[str, str] = field(default_factory=dict)
    ecc: Mapping[str, bool] = field(default_factory=dict)
    ecc_total: Mapping[str, int] = field(default_factory=dict)


def sections(renderer: ScriptRenderer, cdi: str) -> tuple[Section, ...]:
    """The section to run on the node; it needs no root. `cdi` is the kind of devices in CDI files."""
    return (Section(SECTION, renderer.script("nvidia-checkup.sh.j2", cdi=cdi, questions=QUESTIONS), most=ANSWER),)


def parse(sections: Mapping[str, Result]) -> NvidiaCheckup:
    """What the answer says. What makes no sense is left out."""
    answer = sections.get(SECTION)
    found: dict[str, list[str]] = defaultdict(list)
    for line in answer.out.split("\n")[:_LINES] if answer else ():
        key, _, value = printable(line[:500]).partition(" ")
        found[key].append(value)
    bus = {}
    for value in found["pci"][:MOST_GPUS]:
        address, _, module = value.partition(" ")
        if known := pci_bus_id(address):
            bus[known] = module if _WORD.fullmatch(module) else ""
    minors = {}
    for value in found["minor"][:MOST_GPUS]:
        uuid, _, number = value.partition(" ")
        if _UUID.fullmatch(uuid) and number.isdecimal() and len(number) < 5:
            minors[uuid] = int(number)
    persistence = {uuid: cells[0] == "Enabled" for uuid, cells in _rows(found["ask1"], 1) if cells[0] in _SWITCH}
    slowed = {uuid: _WHY[cells.index("Active")] for uuid, cells in _rows(found["ask2"], 3) if "Active" in cells}
    ecc = {uuid: cells[0] == "Enabled" for uuid, cells in _rows(found["ask3"], 2) if cells[0] in _SWITCH}
    totals = {uuid: int(cells[1]) for uuid, cells in _rows(found["ask3"], 2) if cells[1].isdecimal()}
    return NvidiaCheckup(
        module=next((each for each in found["module"] if _VERSION.fullmatch(each)), ""),
        nouveau="nouveau" in found,
        secure_boot="secureboot" in found,
        bus=bus,
        minors=minors,
        devices=frozenset(each for each in found["dev"][:MOST_GPUS] if _WORD.fullmatch(each)),
        mode=next((each for each in found["mode"] if _WORD.fullmatch(each)), ""),
        cdi_files=tuple(cut(each, 200) for each in found["cdi"][:8]),
        # An empty one could not be read: it may be any.
        cdi_names=frozenset(each for each in found["cdiname"] if "" not in found["cdiname"] and _UUID.fullmatch(each)),
        persistence=persistence,
        slowed=slowed,
        ecc=ecc,
        ecc_total=totals,
    )


_SWITCH = ("Enabled", "Disabled")
_WHY = ("too hot", "too little power", "warm, so its driver slows it")
"""By the columns of the second question."""


def _rows(lines: list[str], columns: int) -> list[tuple[str, list[str]]]:
    """The rows of an answer of nvidia-smi: the UUID, and the other cells."""
    rows = [line.split(", ") for line in lines[:MOST_GPUS]]
    return [(cells[0], cells[1:]) for cells in rows if len(cells) == columns + 1 and cells[0].startswith("GPU-")]
