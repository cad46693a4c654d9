"""What a task takes of its node, and to which part of it it is pinned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentless.model.nodes.node import HostFacts, NumaNode
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.rules.scheduling.gpu_timeline import GpuTimeline
from agentless.rules.scheduling.shape import Amounts, Shape


@dataclass(frozen=True, slots=True)
class Load:
    """A task on the node between two times: its cores, its memory in bytes, and whether it wants to be alone.

    `sharing` is on which terms it has its GPUs, `numa` the NUMA node that it is pinned to. Its end is `sure` unless it
    was learned; its begin is `firm` when it is the certain time of a promise.
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


def pinned(
    host: HostFacts, loads: Iterable[Load], shape: Shape, amounts: Amounts, gpus: Sequence[GpuTimeline]
) -> NumaNode | None:
    """The NUMA node that was asked for; else the one near all these GPUs, if `loads` leave enough of it.

    Pinned to CPUs that others have, a task would be slow while others are idle; to less memory than it may use, it
    would be killed.
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
