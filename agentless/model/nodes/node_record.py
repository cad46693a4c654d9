"""What is remembered of nodes and their GPUs, so that what is kept out stays out until it is let in again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.model.nodes.gpu import GpuReading


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new is to start on a node: who said so (`user@host`), when (Unix seconds), and why, if they did."""

    by: str
    since: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A `rules/nodes/gpu_findings.Finding` that keeps its GPU out, and since when (Unix seconds)."""

    key: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU that a node has, or had. `reading` has only what stays as it is: where it is, and what it is.

    `forgiven` are the keys of findings that somebody has seen and lets it run with, each until it is no longer found.
    `logged` is whether the kernel log was read since the GPU is known: what it said at first is old.
    """

    reading: GpuReading
    troubles: tuple[Trouble, ...] = ()
    forgiven: tuple[str, ...] = ()
    logged: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node: whether it is drained, and its GPUs by UUID."""

    drain: Drain | None = None
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """What the admin wants of the health gate: from how many °C on a GPU is too hot (None: never is).

    With `automatic` a GPU comes back when what was found is found no longer, else only when a person resumes it.
    """

    temperature: int | None = None
    automatic: bool = False
