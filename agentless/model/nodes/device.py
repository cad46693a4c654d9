"""What a task is given of a node's hardware, and how an engine gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DeviceKind = Literal["gpu", "slice", "partition"]
EngineName = Literal["docker", "podman", "systemd"]


@dataclass(frozen=True, slots=True)
class Device:
    """A whole GPU, a slice of one, or a partition; `id` is what its driver calls it for ever, as the UUID of a GPU.

    `parent` is the id of the GPU that it is a part of, None for a whole one. `vendor` is the name of the `GpuVendor`
    whose it is, empty where that is not known.
    """

    id: str
    kind: DeviceKind = "gpu"
    parent: str | None = None
    vendor: str = ""

    @property
    def claimed(self) -> tuple[str, ...]:
        """The ids that a claim to it names: a slice and the whole GPU exclude each other."""
        return (self.id,) if self.parent is None else (self.parent, self.id)


@dataclass(frozen=True, slots=True)
class Injection:
    """What gives devices to a task: arguments of the engine's command, and variables of its environment."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What an engine needs to hand out the GPUs of `vendor`, and what shows that it has that.

    `runtime` is what Docker calls the vendor's, `programs` are those that it needs for that, the first that is found
    counts; `cdi` is the kind of the vendor's devices in CDI, of which podman has a list. `fixes` say what to do on the
    node where it is missing, for each engine.
    """

    vendor: str
    runtime: str
    programs: tuple[str, ...]
    cdi: str
    fixes: Mapping[EngineName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """Whether the engine of a node can hand out a vendor's GPUs, and what to do there if not."""

    ready: bool
    fix: str = ""
