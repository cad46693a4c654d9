"""GPUs that are only given in parts: what is said of such a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agentless.model.nodes.cluster import Allocation, Gpu
from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.tasks.task import Placement
from agentless.model.units import format_indices


def marked(gpus: Sequence[GpuReading], held: Mapping[str, Mapping[str, Sequence[Allocation]]]) -> Iterator[GpuReading]:
    """The GPUs, those `divided` of which parts are listed. `held` are holders by GPU and by part.

    A GPU that was divided anew under a task has other parts with the same memory, so none of them is free.
    """
    there = {gpu.uuid for gpu in gpus}
    whole = {gpu.parent for gpu in gpus}
    for gpu in gpus:
        parts = held.get(gpu.parent or "", {})
        gone = next((several[0] for uuid, several in parts.items() if uuid not in there), None)
        if gpu.uuid in whole:
            yield replace(gpu, divided=True)
        elif gone:
            yield replace(gpu, barred=f"{gone} still holds a {gpu.kind} of its GPU that was removed")
        else:
            yield gpu


def why_divided(gpu: GpuReading) -> str:
    """Why nobody gets this GPU as a whole, empty if somebody may."""
    return "in MIG mode" if gpu.mig else "divided into partitions" if gpu.divided else ""


def with_parts(
    node: str, gpus: Sequence[Gpu], held: Mapping[str, Mapping[str, Sequence[Allocation]]]
) -> tuple[Gpu, ...]:
    """The GPUs of a node; a partitioned one says who holds its parts. `held` are holders by GPU and by part."""
    parts: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.reading.parent is not None:
            parts.setdefault(gpu.reading.parent, []).append(gpu)
    return tuple(
        gpu
        if gpu.state != "partitioned" or gpu.reason
        else replace(gpu, reason=_words(node, gpu, parts.get(gpu.reading.uuid, []), held.get(gpu.reading.uuid, {})))
        for gpu in gpus
    )


def removed_slices(held: Placement, sample: GpuSample) -> list[tuple[str, GpuNumber]]:
    """The slices of a task, by UUID and number, that are no longer there, while their GPU is."""
    there = {gpu.uuid for gpu in sample.gpus}
    of = zip(held.gpu_uuids, held.parents, held.gpus, strict=False)
    return [(uuid, number) for uuid, parent, number in of if parent in there and uuid not in there]


def _words(node: str, whole: Gpu, parts: Sequence[Gpu], held: Mapping[str, Sequence[Allocation]]) -> str:
    """`in MIG mode: slice 0/1 is held by task 2mxf of ann, 3 free; ask for a slice, like node1::0/0`."""
    noun = "slice" if whole.reading.mig else "partition"
    by_holders: dict[str, list[Gpu]] = {}
    for part in parts:
        if part.holders:
            by_holders.setdefault(", ".join(map(str, part.holders)), []).append(part)
    found = [f"{_named(noun, several)} held by {holders}" for holders, several in by_holders.items()]
    there = {part.reading.uuid for part in parts}
    gone = dict.fromkeys(str(each) for uuid, several in held.items() if uuid not in there for each in several)
    found += [f"{each} still holds a {noun} that was removed" for each in gone]
    others = Counter(part.state for part in parts if not part.holders)
    found += [f"{count} {state}" for state, count in others.items()]
    if not parts:
        return "; ".join(("in MIG mode without slices", *found))
    example = next((f", like {node}::{part.reading.number}" for part in parts if part.state == "free"), "")
    return f"{why_divided(whole.reading)}: {', '.join(found)}; ask for a {noun}{example}"


def _named(noun: str, parts: Sequence[Gpu]) -> str:
    several = len(parts) > 1
    return f"{noun}{'s' * several} {format_indices(part.reading.number for part in parts)} {'are' if several else 'is'}"
