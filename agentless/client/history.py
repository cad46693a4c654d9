"""The answers of `GET /v1/history` and `GET /v1/usage` as plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentless.client.panels import Curve, Plot, Shown
from agentless.client.words import gpu_number, unix_time, watts
from agentless.model.units import short_duration

Row = Mapping[str, Any]

_SIZES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_MEMORY, _HEAT, _POWER, _DISK = 1, 2, 6, 7
"""The colours of single curves."""
_PERIODS = 240
"""Into how many periods a usage is divided, if none is shorter than a minute."""


def shown(found: Row, points: int, plots: Sequence[Plot]) -> Shown:
    """The plots of an answer with so many points."""
    return Shown(found["at"] - found["step"] * points, found["at"], plots)


def between(
    found: Row, points: int, begin: float, end: float | None, plots: Callable[[dict[str, Any]], Sequence[Plot]]
) -> Shown:
    """The plots of only what was between two moments; without an end, of all since the first one."""
    step = found["step"]
    first = found["at"] - step * points
    low, high = (max(0, min(points, round((at - first) / step))) for at in (begin, end or found["at"]))
    low = min(low, max(0, high - 1))
    gpus = [
        {name: value[low:high] if isinstance(value, list) else value for name, value in gpu.items()}
        for gpu in found["gpus"]
    ]
    return Shown(first + low * step, first + high * step, plots({"gpus": gpus}), is_live=end is None)


def of_gpu(found: Row, gpu: Row) -> list[Plot]:
    """The plots of one GPU: `found` is its part of the answer, `gpu` has its limits."""
    total = gpu["memory_total_mib"]
    share = [None if value is None or not total else 100 * value / total for value in found["memory_used_mib"]]
    load = [Curve("u", "utilization", found["utilization_pct"]), Curve("m", "memory", share)]
    return [
        Plot("Load", load, 100.0, percent),
        _one("Temperature", found["temperature_c"], 100.0, degrees, _HEAT),
        _one("Power", found["power_w"], gpu["power_limit_w"], watts, _POWER),
    ]


def of_gpus(found: Sequence[Row], gpus: Iterable[Row]) -> list[Plot]:
    """The plots of several GPUs of a node, each with a lane for each of them; `gpus` have their limits."""
    if not found:
        return []
    known = list(gpus)

    def plot(title: str, field: str, limit: str, words: Callable[[float | None], str], colour: int = 0) -> Plot:
        values = [each[field] for each in found]
        marks = [str(gpu_number(dict(each))) for each in found]
        top = _top(values, max((gpu[limit] or 0 for gpu in known), default=0)) if limit else 100.0
        curves = [Curve(mark, "", each, colour) for mark, each in zip(marks, values, strict=True)]
        return Plot(f"GPU {title}", curves, top, words, apart=True)

    return [
        plot("utilization", "utilization_pct", "", percent),
        plot("memory", "memory_used_mib", "memory_total_mib", gib, _MEMORY),
        plot("temperature", "temperature_c", "", degrees, _HEAT),
        plot("power", "power_w", "power_limit_w", watts, _POWER),
    ]


def of_node(found: Row, node: Row) -> list[Plot]:
    """How busy a machine was, as far as that is known: `found` is its part of the answer, `node` has its limits."""
    network = [found[f"network_{way}_bytes_per_second"] for way in ("in", "out")]
    plots = [
        _one("Cores busy", found["cores_busy"], node["cores"], plain),
        _one("Memory", found["memory_used_mib"], node["memory_mib"], gib, _MEMORY),
        _one("Disk", found["disk_used_mib"], node["disk_total_mib"], gib, _DISK),
        Plot("Network", [Curve("i", "in", network[0]), Curve("o", "out", network[1])], _doubled(network), speed),
        _one("Temperature", found["temperature_c"], 100.0, degrees, _HEAT),
    ]
    return [plot for plot in plots if any(value is not None for curve in plot.curves for value in curve.values)]


def fine_edges(begin: float, now: float) -> list[float]:
    """The edges of so many periods that a plot of the usage is smooth."""
    count = max(1, min(_PERIODS, int((now - begin) // 60)))
    return [begin + (now - begin) * number / count for number in range(count + 1)]


def of_usage(found: Row) -> Shown:
    """How many GPUs tasks have had over time, on average in each of the periods, which are equally long."""
    edges = [*(unix_time(each["begins_at"]) for each in found["periods"]), unix_time(found["ends_at"])]
    used = [
        each["gpu_hours"] * 3600 / (end - begin)
        for each, (begin, end) in zip(found["periods"], pairwise(edges), strict=True)
    ]
    top = max(1.0, found["gpus"], *used)
    what = "GPUs and slices" if found.get("parts") else "GPUs"
    title = f"{what} allocated, mean of {short_duration(edges[-1] - edges[-2])}"
    return Shown(edges[0], edges[-1], [Plot(title, [Curve("", "", used)], top, plain, exact=True)])


def percent(value: float | None) -> str:
    return _of(value, "%")


def degrees(value: float | None) -> str:
    return _of(value, "C")


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}".removesuffix(".0")


def gib(mib: float | None) -> str:
    """Memory in MiB as short as a plot needs it: `61G`, `0.5G`, `1.8T`."""
    if mib is None:
        return "-"
    size, unit = (mib / 1024, "G") if mib < 1000 * 1024 else (mib / 1024**2, "T")
    return f"{size:.1f}{unit}" if 0.05 <= size < 9.95 else f"{size:.0f}{unit}"


def speed(rate: float | None) -> str:
    """Bytes per second as short as a plot needs them: `293K/s`, `4.9M/s`."""
    if rate is None:
        return "-"
    unit = next((unit for unit in "BKM" if rate < 1000 * _SIZES[unit]), "G")
    size = rate / _SIZES[unit]
    return f"{size:.1f}{unit}/s" if 0.05 <= size < 9.95 and unit != "B" else f"{size:.0f}{unit}/s"


# ---------------------------------------------------------------------- inside


def _of(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _one(
    title: str,
    values: Sequence[float | None],
    limit: float | None,
    words: Callable[[float | None], str],
    colour: int = 0,
) -> Plot:
    return Plot(title, [Curve("", "", values, colour)], _top([values], limit), words)


def _top(curves: Iterable[Sequence[float | None]], limit: float | None) -> float:
    """The limit, or the largest value if that is unknown or was passed."""
    return max([limit or 0.0, *(value for curve in curves for value in curve if value is not None)]) or 1.0


def _doubled(curves: Iterable[Sequence[float | None]]) -> float:
    """The least power of two, from 1024 on, that no value passes: an axis with even values that seldom changes."""
    most, top = _top(curves, None), 1024.0
    while top < most:
        top *= 2
    return top
