"""Records of nodes and their GPUs. Drains and exclusions stay in them until they are lifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentless.model.nodes.gpu import GpuReading

MAX_KEPT = 8
"""Earlier places of containers that are remembered of one engine."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain: by whom (`user@host`), since when (Unix seconds), and why, if a reason was given."""

    by: str
    since: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A `rules/nodes/gpu_findings.Finding` that excludes its GPU, and since when (Unix seconds)."""

    key: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU that a node has or had. `reading` has only permanent values: its place and its model.

    `forgiven` are keys of findings that were resumed, each until it is found no longer. `logged` is whether the kernel
    log was read since the GPU is known: the faults of the first reading are old.
    """

    reading: GpuReading
    troubles: tuple[Trouble, ...] = ()
    forgiven: tuple[str, ...] = ()
    logged: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Where an engine kept containers (`EngineFacts.keeps`, empty if forgotten), and until when (Unix seconds)."""

    keeps: str
    until: float


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The drain of a node, and its GPUs by UUID.

    `keeps` is the last known `EngineFacts.keeps`. `switched_at` is when (Unix seconds) the first look left that found
    another one than before. `kept` are the ones before, in their order; early versions did not record them.
    """

    drain: Drain | None = None
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)
    keeps: str | None = None
    switched_at: float | None = None
    kept: tuple[Kept, ...] = ()

    def switched(self, keeps: str, at: float) -> NodeRecord:
        """The record after a look that left `at`, and found that containers are kept there."""
        if self.keeps is None:
            return replace(self, keeps=keeps)
        kept = (*self.kept, Kept(self.keeps, at))
        if len(kept) > MAX_KEPT:
            kept = (replace(kept[1], keeps=""), *kept[2:])
        return replace(self, keeps=keeps, switched_at=at, kept=kept)

    def hides(self, began: float) -> bool:
        """Whether the engine kept a container that began then (Unix seconds) elsewhere than where it looks now."""
        for each in self.kept:
            if began < each.until:
                return each.keeps != self.keeps
        return self.switched_at is not None and began < self.switched_at


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """The health policy of the inventory: from how many °C on a GPU is too hot (None: never).

    If `automatic`, a GPU is included again when nothing is found any more, else only when a person resumes it.
    """

    temperature: int | None = None
    automatic: bool = False
