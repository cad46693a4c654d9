"""What would make a task fit on a node now. Each remedy was tried: with it, nothing stands in the way any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agentless.model.cluster import Allocation, Gpu, Node
from agentless.model.spec import TaskSpec
from agentless.model.units import format_duration
from agentless.rules.explain import obstacles

MOST_ENDS = 64
"""So many tasks that would have to end are looked at on one node."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """In words, and as what was tried: the task asked for `spec`, or these had ended."""

    text: str
    spec: TaskSpec | None = None
    ends: tuple[Allocation, ...] = ()


def remedies(node: Node, spec: TaskSpec, owner: str, now: float) -> tuple[Remedy, ...]:
    """What would make the task fit, not counting what is promised to others; none when it fits, or nothing helps."""
    if not obstacles(node, spec, owner, now):
        return ()
    found = [Remedy(words, changed) for words, changed in _changes(node, spec) if _fits(node, changed, owner, now)]
    best = {remedy.text.partition(" ")[0]: remedy for remedy in reversed(found)}
    return (*reversed(best.values()), *_after(node, spec, owner, now))


def _fits(node: Node, spec: TaskSpec, owner: str, now: float) -> bool:
    return not obstacles(node, spec, owner, now)


def _changes(node: Node, spec: TaskSpec) -> Iterator[tuple[str, TaskSpec]]:
    """The spec with one thing asked for otherwise; of the same option those first that ask for more."""
    needs = spec.needs
    if needs.indices:
        others = replace(needs, indices=())
        yield f"--gpus {needs.gpus} in place of exactly these", replace(spec, needs=others)
    else:
        for gpus in range(needs.gpus - 1, 0, -1):
            yield f"--gpus {gpus}", replace(spec, needs=replace(needs, gpus=gpus))
    readings = [gpu.reading for gpu in node.gpus]
    if needs.gpu_memory is not None:
        sizes = {reading.memory_unused_mib for reading in readings if reading.memory_unused_mib}
        for mib in sorted((mib for mib in sizes if 0 < mib << 20 < (needs.gpu_memory or 0)), reverse=True):
            yield f"--gpu-memory {mib}MiB", replace(spec, needs=replace(needs, gpu_memory=mib << 20))
    if needs.gpu_types:
        for name in sorted({reading.name for reading in readings if reading.name}):
            yield f"--gpu-type {name!r}", replace(spec, needs=replace(needs, gpu_types=(name,)))
    if needs.gpus and not spec.share and needs.gpu_share == 1:
        yield "--share", replace(spec, share=True)
    host = node.observation.host
    if spec.cores and host and host.cores:
        free = host.cores - node.cores_set_aside
        if 0 < free < spec.cores:
            yield f"--cores {free:g}", replace(spec, cores=free)
    if spec.memory and host and host.memory_mib:
        left = host.memory_mib - int(node.memory_set_aside / 2**20 + 1)
        if 0 < left << 20 < spec.memory:
            yield f"--memory {left}MiB", replace(spec, memory=left << 20)
    if needs.exclusive:
        yield "without --exclusive", replace(spec, needs=replace(needs, exclusive=False))


def _after(node: Node, spec: TaskSpec, owner: str, now: float) -> Iterable[Remedy]:
    """Whose end would be enough: those that end first, without any that need not."""
    soonest = sorted(node.allocations, key=lambda each: (each.ends_at is None, each.ends_at or 0.0, each.task))
    over: list[Allocation] = []
    for allocation in soonest[:MOST_ENDS]:
        over.append(allocation)
        if _fits(_without(node, over), spec, owner, now):
            break
    else:
        return
    for allocation in list(over):
        fewer = [each for each in over if each is not allocation]
        if _fits(_without(node, fewer), spec, owner, now):
            over = fewer
    last = max((each.ends_at or float("inf") for each in over), default=now)
    when = "" if last == float("inf") else f", in {format_duration(last - now)} at the latest"
    has = "has" if len(over) == 1 else "have"
    yield Remedy(f"once {', '.join(map(str, over))} {has} ended{when}", ends=tuple(over))


def _without(node: Node, over: Iterable[Allocation]) -> Node:
    """The node after these have ended."""
    gone = {allocation.task for allocation in over}
    allocations = tuple(each for each in node.allocations if each.task not in gone)
    return replace(node, allocations=allocations, gpus=tuple(_emptied(gpu, gone) for gpu in node.gpus))


def _emptied(gpu: Gpu, gone: set[str]) -> Gpu:
    left = tuple(holder for holder in gpu.holders if holder.task not in gone)
    if left == gpu.holders:
        return gpu
    if left or gpu.state != "allocated":
        return replace(gpu, holders=left)
    if gpu.strangers or gpu.closed:
        return replace(gpu, holders=(), state="foreign", reason="who uses it stays")
    reading = replace(gpu.reading, memory_used_mib=0, memory_free_mib=gpu.reading.memory_total_mib)
    return replace(gpu, reading=reading, holders=(), state="free", reason="", processes=())
