"""AMD cards and the processes on them as `amd-smi list`, `static`, `metric` and `process` have them, with `--json`.

Each prints a list with an object for each GPU; from ROCm 7 on, all but `list` print `{"gpu_data": […]}`. A value is a
number, `{"value": 37, "unit": "%"}` or `"N/A"`. In `list`, `node_id` is the place in HIP's order and `partition_id` the
partition; the function of a partition's `bdf` is its number. The shapes are those of ROCm 6.0 to 7.1: power is
`socket_power`, before `current_socket_power` and `average_socket_power`; its limit is in `limit.socket_power` or
`limit.max_power`, from ROCm 7.1 in `limit.ppt0.socket_power_limit`. Without processes, `process_info` is a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentless.formats.json_answers import first_json, mapping
from agentless.gpus.amd.card import Card, decimal, name_of, rounded, unique
from agentless.gpus.values import CELSIUS, MHZ, MIB, WATTS, whole
from agentless.model.nodes.gpu import MOST_GPUS, pci_bus_id

Place = tuple[str, int]
"""The PCI address of a card, and the number of a partition."""
_UNITS = {"B": 1 / (1 << 20), "KB": 1 / 1024, "MB": 1, "MIB": 1, "GB": 1024, "GIB": 1024}
_IDLE = "no running process"


@dataclass(frozen=True, slots=True)
class SmiProcess:
    """A process on a card."""

    place: Place
    pid: int
    name: str | None
    memory: int | None


def cards(listed: str, static: str, metric: str) -> dict[Place, Card]:
    """All cards that the three answers name. What one of them lacks is not known; an answer that is no JSON is none."""
    places = _places(listed, static)
    of_static, of_metric = _by_gpu(static), _by_gpu(metric)
    nodes = {gpu: each.get("node_id") for gpu, each in _by_gpu(listed).items()}
    return {
        place: _card(of_static.get(gpu, {}), of_metric.get(gpu, {}), nodes.get(gpu)) for gpu, place in places.items()
    }


def processes(listed: str, answer: str) -> list[SmiProcess] | None:
    """The processes on all cards; None if those of any card are not known."""
    places, all_of = _places(listed, ""), []
    by_gpu = _by_gpu(answer)
    if not places or set(by_gpu) != set(places):
        return None
    for gpu, entry in by_gpu.items():
        rows = entry.get("process_list")
        rows = rows if isinstance(rows, list) else [{"process_info": rows}]
        for row in rows:
            about = mapping(row).get("process_info")
            if isinstance(about, str) and about.casefold().startswith(_IDLE):
                continue
            process = _process(places[gpu], mapping(about))
            if process is None:
                return None
            all_of.append(process)
    return all_of


def _process(place: Place, about: Mapping[str, Any]) -> SmiProcess | None:
    pid = whole(str(about.get("pid")))
    if pid is None:
        return None
    memory = mapping(about.get("memory_usage")).get("vram_mem", about.get("mem_usage"))
    return SmiProcess(place, pid, name_of(str(about.get("name", ""))), _mib(memory))


def _by_gpu(answer: str) -> dict[int, Mapping[str, Any]]:
    """The objects of an answer by their `gpu`."""
    value = first_json(answer)[0]
    value = mapping(value).get("gpu_data", value)
    rows = value[: MOST_GPUS * 8] if isinstance(value, list) else []
    known = [(each.get("gpu"), each) for each in map(mapping, rows)]
    return {gpu: each for gpu, each in known if type(gpu) is int}


def _places(listed: str, static: str) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for gpu, each in (_by_gpu(listed) or _by_gpu(static)).items():
        bus = pci_bus_id(str(each.get("bdf") or mapping(each.get("bus")).get("bdf")))
        part = whole(str(each.get("partition_id", 0)), 15) or 0
        if bus:
            places[gpu] = (f"{bus[:-1]}0" if part else bus, part)
    return places


def _card(static: Mapping[str, Any], metric: Mapping[str, Any], node: Any) -> Card:
    asic, limit, usage = (mapping(static.get("asic")), mapping(static.get("limit")), mapping(metric.get("usage")))
    power, heat, clock = (mapping(metric.get(key)) for key in ("power", "temperature", "clock"))
    memory, driver = mapping(metric.get("mem_usage")), mapping(static.get("driver"))
    ppt, modes = mapping(limit.get("ppt0")), mapping(static.get("partition"))
    names = asic.get("market_name"), mapping(static.get("board")).get("product_name")
    return Card(
        node=node if type(node) is int else None,
        unique=unique(str(asic.get("asic_serial"))),
        name=next(filter(None, (name_of(str(each or "")) for each in names)), None),
        driver=name_of(str(driver.get("version") or driver.get("driver_version") or "")),
        total=_first(_mib(memory.get("total_vram")), _mib(mapping(static.get("vram")).get("size"))),
        used=_mib(memory.get("used_vram")),
        busy=rounded(_number(usage.get("gfx_activity"), 100)),
        memory_busy=rounded(_number(usage.get("umc_activity"), 100)),
        celsius=rounded(_first(_number(heat.get("edge"), CELSIUS), _number(heat.get("hotspot"), CELSIUS))),
        watts=_first(
            *(
                _number(power.get(key), WATTS)
                for key in ("socket_power", "current_socket_power", "average_socket_power")
            )
        ),
        watts_limit=_first(
            _number(ppt.get("socket_power_limit"), WATTS),
            *(_number(limit.get(key), WATTS) for key in ("socket_power", "socket_power_limit", "max_power")),
        ),
        fan=rounded(_number(mapping(metric.get("fan")).get("usage"), 100)),
        mhz=rounded(_number(mapping(clock.get("gfx_0")).get("clk"), MHZ)),
        memory_mhz=rounded(_number(mapping(clock.get("mem_0")).get("clk"), MHZ)),
        uncorrected=rounded(_number(mapping(metric.get("ecc")).get("total_uncorrectable_count"), 1e12)),
        numa=rounded(_number(mapping(static.get("numa")).get("node"), 1024)),
        compute=name_of(str(modes.get("compute_partition") or modes.get("accelerator_partition") or "")),
        memory=name_of(str(modes.get("memory_partition") or "")),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _number(value: Any, most: float) -> float | None:
    value = mapping(value).get("value", value)
    return decimal(str(value), most) if type(value) in (int, float, str) else None


def _mib(value: Any) -> int | None:
    unit = str(mapping(value).get("unit", "MB")).upper()
    size = _number(value, 1e15)
    if size is None or unit not in _UNITS:
        return None
    return rounded(size * _UNITS[unit]) if size * _UNITS[unit] <= MIB else None
