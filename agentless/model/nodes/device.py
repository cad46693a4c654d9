"""Devices that a task can have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["gpu", "slice", "partition"]

PART_NUMBER = re.compile(r"(0|[1-9][0-9]{0,3})/(0|[1-9][0-9]{0,3})")
GpuNumber = int | str
"""The number of a GPU on its node, or of a part of one: `0`, `"0/1"` is part 1 of GPU 0."""


@dataclass(frozen=True, slots=True)
class Device:
    """A whole GPU, a slice of one, or a partition. `id` is its driver's permanent name for it, like a GPU's UUID.

    `parent` is the id of the GPU that it is a part of, None for a whole GPU. `vendor` is a `GpuVendor.name`, empty if
    not known.
    """

    id: str
    kind: DeviceKind = "gpu"
    parent: str | None = None
    vendor: str = ""

    @property
    def token(self) -> str:
        """The word for it in a claim: `GPU-x`, and `GPU-x_MIG-y` for a part. No id has a `_`."""
        return self.id if self.parent is None else f"{self.parent}_{self.id}"

    @property
    def claimed(self) -> tuple[str, ...]:
        """The words in a claim to it. A part also names its GPU, so that older controllers see the GPU as held."""
        return (self.token,) if self.parent is None else (self.parent, self.token)


def devices_of(tokens: Iterable[str], vendor: str = "") -> tuple[Device, ...]:
    """The devices that a claim names: a GPU beside a part of it is not held as a whole."""
    words = {word: word.partition("_") for word in tokens}
    parents = {parent for parent, _, part in words.values() if part}
    return tuple(
        Device(part, "slice", parent, vendor) if parent and part else Device(word, vendor=vendor)
        for word, (parent, _, part) in words.items()
        if word not in parents
    )


def parents_of(devices: Sequence[Device]) -> tuple[str, ...]:
    """For each device the id of its GPU, empty for a whole one. Nothing at all if all are whole."""
    return tuple(each.parent or "" for each in devices) if any(each.parent for each in devices) else ()


def parts_of(number: GpuNumber) -> tuple[int, int]:
    """The number of the GPU and that of the part, -1 for the whole GPU. GPUs sort by it, each before its parts."""
    if isinstance(number, int):
        return number, -1
    gpu, _, part = number.partition("/")
    return int(gpu), int(part)


def number_of(text: str) -> GpuNumber:
    """The number that a text is, as it is printed."""
    return text if "/" in text else int(text)


def any_parts(numbers: Iterable[GpuNumber]) -> bool:
    """Whether one of them is the number of a part."""
    return any(isinstance(number, str) for number in numbers)


def overlap(one: GpuNumber, other: GpuNumber) -> bool:
    """Whether both are the same GPU or part, or one is a part of the other."""
    (gpu, part), (another, its) = parts_of(one), parts_of(other)
    return gpu == another and (part == its or -1 in (part, its))
