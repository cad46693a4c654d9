"""The cluster at one moment: what placement decides on and what people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentless.model.nodes.gpu import GpuFault, GpuProcess, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.node import Breakdown, EngineFacts, HostFacts, NodeConfig
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import ALONE, Sharing

NodeState = Literal["online", "degraded", "offline", "drained"]
GpuState = Literal["free", "allocated", "foreign", "unknown", "excluded", "unhealthy", "drained"]


@dataclass(frozen=True, slots=True)
class Observation:
    """The last that was heard of a node. `error` is why it cannot be reached now, None while it is connected.

    `topology` is the last that could be read, None before that. `faults` are as of the last full look, None where the
    kernel log cannot be read. `broken` is why no launch succeeds there, None unless the last one has shown that.
    """

    error: str | None = "not connected yet"
    sample: GpuSample | None = None
    sampled_at: float | None = None
    host: HostFacts | None = None
    engine: EngineFacts | None = None
    topology: GpuTopology | None = None
    faults: tuple[GpuFault, ...] | None = None
    broken: Breakdown | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a task, by whichever controller, holds of a node.

    `memory` in bytes; `since` is when (Unix seconds) it began, `limit` for how many seconds at most; None: not known.
    `numa` is the NUMA node to whose CPUs and memory it is pinned, None if it is not.
    """

    task: str
    owner: str
    gpu_uuids: tuple[str, ...] = ()
    cores: float = 0.0
    memory: float = 0.0
    exclusive: bool = False
    since: float | None = None
    limit: float | None = None
    sharing: Sharing = ALONE
    numa: int | None = None

    @property
    def ends_at(self) -> float | None:
        """When it will be over at the latest, None when nobody knows."""
        return None if self.since is None or self.limit is None else self.since + self.limit

    def __str__(self) -> str:
        return f"task {self.task} of {self.owner}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU with its state. `reason` says in words why it is not free, empty when it is.

    `holders` are the tasks that have it, several where they share it; `closed` says in words why no other task may come
    to it even so, empty when one may. `strangers` are processes that use it and are in none of the containers of its
    tasks; `intruders` are those of them that no task which holds it expects (`--share`). An `unhealthy` one may have
    holders all the same, and one that has vanished is there with the last known index. `home` is the node that it is
    counted on where that is another one, which names it, too.
    """

    reading: GpuReading
    state: GpuState
    reason: str = ""
    holders: tuple[Allocation, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    strangers: tuple[GpuProcess, ...] = ()
    intruders: tuple[GpuProcess, ...] = ()
    closed: str = ""
    home: str | None = None

    @property
    def holder(self) -> Allocation | None:
        """The first of those that hold it."""
        return self.holders[0] if self.holders else None

    @property
    def shares(self) -> int:
        """How many tasks may be on it: as many as the least willing of them allows."""
        return min((holder.sharing.limit for holder in self.holders), default=1)


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its state. `reason` says why it is not online, empty when it is.

    `last_start` is when (Unix seconds) the last of its tasks was started, 0 when there is none. `reservations` are
    those that are not over, the first to begin first. `drained` is whether nothing new may start there: one that is
    offline besides has the state `offline`. `trial` is what the next task there finds out about, where one may: whether
    a breakdown is over.
    """

    config: NodeConfig
    state: NodeState
    reason: str
    gpus: tuple[Gpu, ...]
    observation: Observation
    allocations: tuple[Allocation, ...] = ()
    last_start: float = 0.0
    reservations: tuple[Reservation, ...] = ()
    drained: bool = False
    trial: Breakdown | None = None

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.config.name

    @property
    def cores_set_aside(self) -> float:
        """For all tasks on it."""
        return sum(allocation.cores for allocation in self.allocations)

    @property
    def memory_set_aside(self) -> float:
        """Bytes, for all tasks on it."""
        return sum(allocation.memory for allocation in self.allocations)

    @property
    def tasks(self) -> int | None:
        """How many tasks live on it, by whichever controller; None while it does not say."""
        seen = self.observation
        silent = seen.error is not None or seen.engine is None or seen.engine.containers is None
        return None if silent else len(self.allocations)


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes of the inventory, in its order, at the moment `at` (Unix seconds)."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    at: float = 0.0
