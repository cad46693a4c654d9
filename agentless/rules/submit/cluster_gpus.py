"""Which GPUs of a cluster have the memory that a task asks for. Slurm knows only types, some of which name it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.scheduling.needs import is_type
from agentless.model.tasks.spec import TaskSpec
from agentless.model.units import short_size

_MEMORY = re.compile(r"(?<![0-9])([0-9]{1,3})gb?(?![a-z0-9])")
"""`80gb` in `nvidia_a100_80gb_pcie`, `80g` in `a100-80g`."""
_SLICE = re.compile(r"\b[0-9]g\.")
_NAMED = 8


def with_type(spec: TaskSpec, cluster: str, nodes: Iterable[ClusterNode]) -> TaskSpec:
    """The spec with the GPU type that has the memory it asks for in its place. Raises UsageError unless that is one."""
    asked = spec.needs.gpu_memory
    if asked is None:
        return spec
    wanted = spec.needs.gpu_types
    there = sorted({kind for node in nodes for kind, _ in node.gpus})
    found = [
        kind for kind in there if _memory(kind) >= asked and (not wanted or any(is_type(kind, each) for each in wanted))
    ]
    if len(found) == 1:
        return replace(spec, needs=replace(spec.needs, gpu_types=(found[0],), gpu_memory=None))
    named = [kind for kind in found or there if kind]
    example = f"{cluster} {spec.needs.gpus or 1}x{named[0] if named else ''}"
    types = f"; types there: {', '.join(named[:_NAMED])}{' and more' * (len(named) > _NAMED)}" if named else ""
    why = "several types have that" if found else "no type there is known to have that"
    raise UsageError(f"{short_size(asked)} per GPU on {cluster}: Slurm knows types, and {why}; use {example}{types}")


def _memory(kind: str) -> int:
    """The memory that a type names, in bytes, 0 if it names none. A slice (`a100_2g.20gb`) is no whole GPU."""
    found = _MEMORY.findall(kind.lower())
    return int(found[-1]) * 10**9 if found and not _SLICE.search(kind.lower().replace("_", " ")) else 0
