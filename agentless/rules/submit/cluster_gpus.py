"""Which GPUs of a cluster a task means. Slurm knows only types, some of which name the memory, and their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.scheduling.needs import Needs, is_type
from agentless.model.tasks.spec import TaskSpec
from agentless.model.units import counted, short_size

_MEMORY = re.compile(r"(?<![0-9])([0-9]{1,3})gb?(?![a-z0-9])")
"""`80gb` in `nvidia_a100_80gb_pcie`, `80g` in `a100-80g`."""
_SLICE = re.compile(r"\b[0-9]g\.")
_NAMED = 8


def with_type(spec: TaskSpec, cluster: str, nodes: Iterable[ClusterNode]) -> TaskSpec:
    """The spec with the one GPU type of a cluster that it means. Raises UsageError unless that is one.

    `h100` is `nvidia_h100_80gb_hbm3` where no other type has that word; a size is a type that names so much memory.
    Slurm is left to judge a type of a cluster whose types are not known.
    """
    asked, wanted = spec.needs.gpu_memory, spec.needs.gpu_types
    there = sorted({kind for node in nodes for kind, _ in node.gpus})
    if asked is None and not (wanted and any(there)):
        # Slurm writes those that it has detected in small letters.
        return replace(spec, needs=replace(spec.needs, gpu_types=tuple(each.lower() for each in wanted)))
    found = [
        kind
        for kind in there
        if _memory(kind) >= (asked or 0) and (not wanted or any(is_type(kind, each) for each in wanted))
    ]
    same = [kind for kind in found if [kind.lower()] == [each.lower() for each in wanted]]
    if len(found := same or found) == 1:
        return replace(spec, needs=replace(spec.needs, gpu_types=(found[0],), gpu_memory=None))
    named = [kind for kind in found or there if kind]
    example = f"{cluster} {spec.needs.gpus or 1}x{named[0] if named else ''}"
    types = f"; types there: {', '.join(named[:_NAMED])}{' and more' * (len(named) > _NAMED)}" if named else ""
    if asked is None:
        why = f"several types of {cluster} match" if found else f"no type of {cluster} matches"
        raise UsageError(f"{' or '.join(wanted)}: {why}; use {example}{types}")
    why = "several types have that" if found else "no type there is known to have that"
    raise UsageError(f"{short_size(asked)} per GPU on {cluster}: Slurm knows types, and {why}; use {example}{types}")


def lacks(needs: Needs, cluster: str, nodes: Iterable[ClusterNode]) -> str:
    """What no node of a cluster that is up has, in words; empty if one has it, or if its nodes are not known."""
    known = [*nodes]
    if not known or any(_has(node, needs) for node in known):
        return ""
    kind = f"{needs.gpu_types[0]} " if needs.gpu_types else ""
    return f"no node of {cluster} that is up has {counted(needs.gpus, f'{kind}GPU')}"


def _has(node: ClusterNode, needs: Needs) -> bool:
    wanted = needs.gpu_types[0].lower() if needs.gpu_types else None
    return not node.is_out and needs.gpus <= sum(
        count for kind, count in node.gpus if wanted is None or kind.lower() == wanted
    )


def _memory(kind: str) -> int:
    """The memory that a type names, in bytes, 0 if it names none. A slice (`a100_2g.20gb`) is no whole GPU."""
    found = _MEMORY.findall(kind.lower())
    return int(found[-1]) * 10**9 if found and not _SLICE.search(kind.lower().replace("_", " ")) else 0
