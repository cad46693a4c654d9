"""AMD cards as `rocm-smi -a --json` has them, and whether anything uses them, by `rocm-smi --showpids --json`.

The first is an object with one for each card, `card0`, and one of the `system`. All values are texts. Keys differ by
version, in words and in case; the shapes are those of ROCm 4.3 to 6.1, `tests/pure/data/amd` has them. The second has
`"PID4711": "python, 1, 1048576, 0, unknown"` in `system`: a process with its name, and on how many GPUs it is, but not
on which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentless.formats.json_answers import first_json, mapping
from agentless.gpus.amd import names
from agentless.gpus.amd.card import Card, decimal, name_of, rounded, unique
from agentless.gpus.values import CELSIUS, MHZ, MIB, WATTS, whole
from agentless.model.nodes.gpu import MOST_GPUS, pci_bus_id

_CARD = re.compile(r"card[0-9]{1,3}")
_PID = re.compile(r"PID([0-9]{1,10})")
_CLOCK = re.compile(r"\(?([0-9]{1,6})mhz\)?", re.IGNORECASE)
_NO_NUMA = 0xFFFFFFFF


def cards(answer: str) -> dict[str, Card]:
    """The cards by their PCI addresses, in the order of the answer; none if it is no JSON."""
    value = mapping(first_json(answer)[0])
    driver = name_of(str(mapping(value.get("system")).get("Driver version", "")))
    known: dict[str, Card] = {}
    for key, each in value.items():
        words = {str(name).casefold().rstrip(":"): str(text) for name, text in mapping(each).items()}
        bus = pci_bus_id(words.get("pci bus", ""))
        if _CARD.fullmatch(key) and bus and len(known) < MOST_GPUS:
            known[bus] = _card(words, driver)
    return known


def pids(answer: str) -> list[tuple[int, str | None]] | None:
    """The processes that use any card, with their names; None if they are not known."""
    value: Any = first_json(answer)[0]
    system = mapping(mapping(value).get("system"))
    known = [(int(match[1]), text) for key, text in system.items() if (match := _PID.fullmatch(key))]
    if not known and "no kfd pids" not in answer.casefold():
        return None
    return [(pid, name_of(str(text).partition(",")[0])) for pid, text in known]


def _card(words: Mapping[str, str], driver: str | None) -> Card:
    def first(*keys: str) -> str:
        return next((words[key] for key in keys if words.get(key, "N/A") != "N/A"), "")

    heat = [words.get(f"temperature (sensor {place}) (c)", "") for place in ("edge", "junction")]
    power = first("average graphics package power (w)", "current socket graphics package power (w)")
    numa = whole(first("(topology) numa affinity"))
    return Card(
        node=whole(first("node id")),
        unique=unique(first("unique id")),
        name=name_of(first("card series", "device name"))
        or names.name(first("device id", "gpu id"), first("device rev")),
        driver=driver,
        total=_mib(first("vram total memory (b)")),
        used=_mib(first("vram total used memory (b)")),
        busy=whole(first("gpu use (%)"), 100),
        memory_busy=whole(first("gpu memory read/write activity (%)", "gpu memory use (%)"), 100),
        celsius=rounded(next((value for text in heat if (value := decimal(text, CELSIUS)) is not None), None)),
        watts=decimal(power, WATTS),
        watts_limit=decimal(first("max graphics package power (w)"), WATTS),
        fan=rounded(decimal(first("fan speed (%)"), 100)),
        mhz=_mhz(first("sclk clock speed")),
        memory_mhz=_mhz(first("mclk clock speed")),
        numa=None if numa == _NO_NUMA else numa,
        compute=name_of(first("compute partition")),
        memory=name_of(first("memory partition")),
    )


def _mib(text: str) -> int | None:
    size = whole(text)
    return None if size is None or size >> 20 > MIB else size >> 20


def _mhz(text: str) -> int | None:
    match = _CLOCK.fullmatch(text)
    return whole(match[1], MHZ) if match else None
