"""Records of nodes and their GPUs. Drains and exclusions stay in them until they are lifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.nodes.gpu import GpuReading


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
class NodeRecord:
    """The drain of a node, and its GPUs by UUID.

    `keeps` is the last known `EngineFacts.keeps`. `switched_at` is when (Unix seconds) the first look left that found
    another one than before.
    """

    drain: Drain | None = None
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)
    keeps: str | None = None
    switched_at: float | None = None


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """The health policy of the inventory: from how many °C on a GPU is too hot (None: never).

    If `automatic`, a GPU is included again when nothing is found any more, else only when a person resumes it.
    """

    temperature: int | None = None
    automatic: bool = False
