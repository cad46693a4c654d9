"""Devices that a task can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["gpu", "slice", "partition"]

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
    def claimed(self) -> tuple[str, ...]:
        """The ids that a claim to it names. A slice also names its GPU, so that both exclude each other."""
        return (self.id,) if self.parent is None else (self.parent, self.id)
