"""Parses and formats sizes, durations and numbers.

Sizes: `K M G T` (also `KB…`) are powers of 1000, `KiB MiB GiB TiB` (also `Ki…`) of 1024; a number without a unit is
megabytes, wherever a person writes one. What programs exchange (JSON, labels, the state file) is in bytes.
Durations: `90` and `90s` are seconds, `30min` or `30m`, `2h30m`, `1d`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentless.errors import UsageError
from agentless.model.nodes.device import GpuNumber, parts_of

SIZE_UNITS = {
    "T": 10**12, "TiB": 2**40, "G": 10**9, "GiB": 2**30, "M": 10**6, "MiB": 2**20, "K": 10**3, "KiB": 2**10, "B": 1,
}  # fmt: skip
"""Bytes, the largest unit first."""
_BY_SPELLING = {
    "b": 1,
    **{f"{unit}{end}".lower(): SIZE_UNITS[unit] for unit in "KMGT" for end in ("", "B")},
    **{f"{unit}{end}".lower(): SIZE_UNITS[f"{unit}iB"] for unit in "KMGT" for end in ("i", "iB")},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_LARGEST = 2**63 - 1  # what the engine and the state file can hold
_AS_MEGABYTES = 10**5  # so few bytes were probably meant as megabytes
_LONGEST = 1e9  # seconds, 31 years
_NUMBER = r"\d+(?:\.\d+)?"
_DURATION = re.compile(rf"(?:{_NUMBER}|(?:{_NUMBER}\s*(?:ms|sec|s|min|m|h|d)\s*)+)", re.IGNORECASE | re.ASCII)
_DURATION_PART = re.compile(rf"({_NUMBER})\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_SECONDS = {"": 1, "ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Plausible sizes: at least so many bytes, or so many megabytes for a number without a unit."""

    least: int
    bare: range


MEMORY = Sizes(6 * 2**20, range(64, 10**7))
"""Docker starts no container with less memory."""
SHM = Sizes(2**20, range(64, 10**7))
GPU_MEMORY = Sizes(2**20, range(512, 10**7))
DESKTOP_MEMORY = Sizes(2**20, range(64, 10**5))
LOG = Sizes(1, range(1, 1000))
LOGS = Sizes(1, range(1, 10**6))


def parse_size(text: str, of: Sizes | None = None) -> int:
    """Bytes in `text`; without `of` a unit is required.

    Anything unreadable, negative or implausible is a UsageError, never a default.
    """
    match = _SIZE.fullmatch(text.strip())
    if match:
        number, unit = match[1], match[2].lower() or "m"
        if unit in _BY_SPELLING:
            size = float(number) * _BY_SPELLING[unit]
            if not size or 1 <= size <= _LARGEST:
                if wrong := bare_size(text, of):
                    raise UsageError(f"{text!r} {wrong}")
                return int(size)
    raise UsageError(f"{text!r} is not a size; use a number with a unit, like 512M, 1.5GB or 16GiB")


def bare_size(text: str, of: Sizes | None) -> str:
    """The error for a number without a unit, with the probable meaning. Empty for any other text."""
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2] or not (number := float(match[1])) or number > _LARGEST:
        return ""
    if of is None:
        return "has no unit; use 512M, 1.5GB or 16GiB"
    if of.bare.start <= number < of.bare.stop:
        return ""
    meant = f"{match[1]}G" if number < of.bare.start else short_size(int(number))
    return (
        f"has no unit, and {match[1]} MB is implausible; "
        f"did you mean {meant}? Use {meant}, or {match[1]}M for megabytes"
    )


def least_size(size: int, of: Sizes) -> str:
    """The error for too few bytes, with the probable meaning. Empty if they are enough."""
    if size >= of.least:
        return ""
    # Megabytes were taken for bytes, or the unit is too small.
    factor = 10**6 if size < _AS_MEGABYTES else 1000 if size % 1024 else 1024
    meant = short_size(size * factor)
    return f"{short_size(size)} is implausible: the minimum is {format_size(of.least)}; did you mean {meant}?"


def format_size(size: int) -> str:
    """The shortest binary reading with at most one decimal: `512 MiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        value = size / SIZE_UNITS[unit]
        if round(value, 1) < 1024:
            break
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def short_size(size: int) -> str:
    """A size as a user would type it: `40G`, `16GiB`, `512M`, else bytes."""
    unit = next(unit for unit, one in SIZE_UNITS.items() if size % one == 0 and unit not in ("K", "KiB"))
    return f"{size // SIZE_UNITS[unit]}{unit}"


def parse_duration(text: str) -> float:
    """Seconds in `text`; units add up (`2h30m`)."""
    if _DURATION.fullmatch(text.strip()):
        parts = _DURATION_PART.findall(text)
        seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
        if seconds <= _LONGEST:
            return seconds
    raise UsageError(f"{text!r} is not a duration; use 30s, 10min, 2h30m or 1d")


def format_duration(seconds: float) -> str:
    """A duration in at most two units: `42s`, `3m 12s`, `2h 5m`, `4d 3h`."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left}s"
    minutes, secs = divmod(left, 60)
    if minutes < 60:
        return f"{minutes}m {secs}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def short_duration(seconds: float) -> str:
    """A duration, rounded down, as a user would type it: `45s`, `12m`, `1h10m`, `4d3h`."""
    first, *rest = format_duration(seconds).split()
    return first + "".join(part for part in rest if part[0] != "0")


def format_indices(indices: Iterable[GpuNumber]) -> str:
    """`0-3,6,7` for 0, 1, 2, 3, 6, 7: runs of three and more are shortened; so are parts of a GPU: `0/0-2`."""
    runs: list[list[tuple[int, int]]] = []
    for gpu, part in map(parts_of, indices):
        before = (gpu - 1, -1) if part < 0 else (gpu, part - 1)
        if runs and before == runs[-1][-1] and (part < 0 or part > 0):
            runs[-1].append((gpu, part))
        else:
            runs.append([(gpu, part)])
    return ",".join(map(_run, runs))


def _run(run: list[tuple[int, int]]) -> str:
    names = [str(gpu) if part < 0 else f"{gpu}/{part}" for gpu, part in run]
    gpu, part = run[-1]
    return f"{names[0]}-{gpu if part < 0 else part}" if len(run) > 2 else ",".join(names)


def thousands(number: int, noun: str) -> str:
    """A number and its noun: `1 file`, `12,345 files`."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def counted(number: float, noun: str) -> str:
    """A number, possibly fractional, and its noun: `1 core`, `0.5 cores`, `2 cores`."""
    return f"{number:g} {noun}" + "s" * (number != 1)
