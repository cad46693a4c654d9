"""What a task uses of its node, and the NUMA node to which it is pinned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentless.model.nodes.node import HostFacts, NumaNode
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import GpuTimeline


class Load(NamedTuple):
    """A task on a node between two times: its cores, its memory in bytes, and whether it has the node alone.

    `sharing` are the terms on which it has its GPUs, `numa` is the NUMA node to which it is pinned. The end is `sure`
    unless it was estimated. The begin is `firm` if a certain time was promised. Until then, its place `lends` itself to
    preemptible tasks, which it asks to go.
    """

    begin: float
    end: float
    cores: float
    memory: float
    exclusive: bool
    sharing: Sharing = ALONE
    numa: int | None = None
    sure: bool = True
    firm: bool = False
    lends: bool = False


def pinned(
    host: HostFacts, loads: Iterable[Load], shape: Shape, amounts: Amounts, gpus: Sequence[GpuTimeline]
) -> NumaNode | None:
    """The requested NUMA node, else the one near all these GPUs if `loads` leave enough of it.

    Pinned to busy CPUs, a task is slow while other CPUs are idle. Pinned to too little memory, it is killed.
    """
    near = {shape.numa} if shape.numa is not None else {gpu.numa for gpu in gpus}
    numa = next((each for each in host.numa if near == {each.id}), None)
    if numa is None or shape.numa is not None:
        return numa
    there = [load for load in loads if load.numa == numa.id]
    cores = amounts.cores + sum(load.cores for load in there)
    memory = amounts.memory + sum(load.memory for load in there)
    fits = cores <= numa.cores + 1e-9 and (not amounts.memory or memory <= (numa.memory_mib or 0) << 20)
    return numa if fits else None
