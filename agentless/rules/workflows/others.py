"""The keys of other systems' files, as options of ours: Joblet's workflows, and dsHPC's methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agentless.errors import UsageError
from agentless.rules.views.nearest import nearest

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
VOLUMES = "/volumes"
"""Where Joblet mounts volumes."""
STATES = {
    "completed": ("completed", True),
    "failed": ("failed", False),
    "all_failed": ("failed", True),
    "ended": ("ended", True),
    "finished": ("ended", True),
}
"""How a required job has to end, and whether each of its tasks has to; `finished` is Joblet's word."""


class Found(NamedTuple):
    """An option and its value; `key` is where it stands. Without an option, a `note` for the user."""

    key: str
    option: str
    value: str = ""
    note: str = ""


def resources_of(given: Mapping[str, Any]) -> Iterator[Found | tuple[str, str]]:
    """The options for `resources:`; for a key that is wrong, the key and the reason."""
    for key, value in given.items():
        if key not in _RESOURCES:
            yield key, f"unknown key {key!r}{nearest(key, _RESOURCES)}; known: {', '.join(_RESOURCES)}"
            continue
        option, convert = _RESOURCES[key]
        try:
            text = convert(value if isinstance(value, str) else "")
        except UsageError as error:
            yield key, str(error)
            continue
        if key == "gpu_memory_mb" and given.get("gpu_count") in (None, "0"):
            continue  # without a number of GPUs, such a job has none
        if key == "cpu_cores" and given.get("max_cpu") not in (None, "0"):
            continue
        if option is None:
            if text:
                yield Found(key, "", note=f"{key} is ignored: agentless does not limit I/O")
        elif text or option == "gpus":
            yield Found(key, option, text)


def volume_of(text: str) -> str:
    """`NAME` as `NAME:/volumes/NAME`; `NAME:/path` stays as it is."""
    return text if ":" in text else f"{text}:{VOLUMES}/{text}"


def _megabytes(text: str) -> str:
    number = _number(text, "megabytes")
    return f"{text}MB" if number else ""


def _percent(text: str) -> str:
    return f"{number / 100:.12g}" if (number := _number(text, "percent of a core")) else ""


def _count(text: str) -> str:
    _number(text, "")
    return text


def _cores(text: str) -> str:
    parts = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    if not text or not all(parts):
        raise UsageError(f"is {text[:60]!r}; must be numbers of cores, like 0-3")
    return str(sum(int(part[2] or part[1]) - int(part[1]) + 1 for part in parts if part))


def _number(text: str, what: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise UsageError(f"is {text[:60]!r}; must be a number" + (f" of {what}" if what else ""))
    return float(text)


_RESOURCES: Mapping[str, tuple[str | None, Callable[[str], str]]] = {
    "max_memory": ("memory", _megabytes),
    "max_cpu": ("cores", _percent),
    "gpu_count": ("gpus", _count),
    "gpu_memory_mb": ("gpu_memory", _megabytes),
    "cpu_cores": ("cores", _cores),
    "max_io_bps": (None, _count),
    "max_iobps": (None, _count),
    "min_memory_mb": ("memory", _megabytes),
    "cpus": ("cores", _count),
    "gpus": ("gpus", _count),
}
