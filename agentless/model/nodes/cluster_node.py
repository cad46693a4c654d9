"""A compute node of a cluster with a queue of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as its cluster has it. `gpus` are types (empty: none is named) with their numbers; memory is in MiB.

    `reason` is why an administrator has taken it out.
    """

    name: str
    state: str
    gpus: tuple[tuple[str, int], ...]
    gpus_used: int
    cores: int
    cores_used: int
    memory_mib: int
    memory_used_mib: int
    reason: str
