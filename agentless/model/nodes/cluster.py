"""Snapshot of the cluster at one point in time: the input of scheduling, and what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentless.model.nodes.gpu import GpuFault, GpuProcess, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import Breakdown, EngineFacts, HostFacts, NodeConfig
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import ALONE, Sharing

NodeState = Literal["online", "degraded", "offline", "drained"]
GpuState = Literal["free", "allocated", "foreign", "unknown", "excluded", "unhealthy", "drained", "partitioned"]


@dataclass(frozen=True, slots=True)
class Observation:
    """The latest readings of a node. `error` is why it cannot be reached now, None while it is connected.

    `topology` is the latest that could be read, None before that. `faults` are from the latest full look, None if the
    kernel log cannot be read. `broken` is why the latest launch failed, if the reason lies with the node. `load` is how
    busy the machine was when last asked.
    """

    error: str | None = "not connected yet"
    sample: GpuSample | None = None
    sampled_at: float | None = None
    host: HostFacts | None = None
    engine: EngineFacts | None = None
    topology: GpuTopology | None = None
    faults: tuple[GpuFault, ...] | None = None
    broken: Breakdown | None = None
    load: HostLoad | None = None


@dataclass(frozen=True, slots=True)
class Yields:
    """On which terms a task gives way: not asked before `since` (Unix seconds), and gone `within` seconds then.

    `began` is when it started. `mates` are the members of its gang, itself included, which give way together.
    """

    since: float
    within: float
    began: float
    mates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a task of any controller holds of a node.

    `memory` is in bytes. `since` is its start (Unix seconds) and `limit` its time limit in seconds, None if unknown.
    `numa` is the NUMA node to which it is pinned, or None. `parents` are the GPUs of parts, as in `Placement`.
    `yields`: it gives way to tasks that need its place.
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
    parents: tuple[str, ...] = ()
    yields: Yields | None = None

    @property
    def ends_at(self) -> float | None:
        """When it ends at the latest. None if unknown."""
        return None if self.since is None or self.limit is None else self.since + self.limit

    def __str__(self) -> str:
        return f"task {self.task} of {self.owner}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU with its state. `reason` says in words why it is not free, empty if it is.

    `holders` are the tasks that have it, several if they share it. `closed` says in words why no other task may join
    them, empty if one may. `no_container` says why no container can get it: it is `excluded` then instead of free, and
    a task without a container may still have it. `desktop` are those of `processes` that keep no task from it, see
    `rules/nodes/desktop`. `strangers` are the others outside the containers of its tasks, and `intruders` those of them
    that no holder expects (`--share`). An `unhealthy` GPU may have holders. A vanished GPU has its last known index.
    `home` is the node that the GPU counts for, if another node reports it, too. `assumed` says in words why nobody
    knows who uses it, if the inventory says to take it for free. A `partitioned` GPU is
    given in parts only, which are GPUs of their own behind it.
    """

    reading: GpuReading
    state: GpuState
    reason: str = ""
    holders: tuple[Allocation, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    strangers: tuple[GpuProcess, ...] = ()
    intruders: tuple[GpuProcess, ...] = ()
    closed: str = ""
    no_container: str = ""
    home: str | None = None
    desktop: tuple[GpuProcess, ...] = ()
    assumed: str = ""

    @property
    def holder(self) -> Allocation | None:
        """The first holder."""
        return self.holders[0] if self.holders else None

    @property
    def is_bare(self) -> bool:
        """Whether only a task without a container may have it."""
        return self.state == "excluded" and bool(self.no_container)

    @property
    def shares(self) -> int:
        """How many tasks may share it: the lowest limit of its holders."""
        return min((holder.sharing.limit for holder in self.holders), default=1)


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its state. `reason` says why it is not online, empty if it is.

    `last_start` is the last start of a task (Unix seconds), 0 if there is none. `reservations` are those that are not
    over, by their begin. If `drained`, nothing new may start; a drained node that is offline has the state `offline`.
    `trial` is a breakdown that may be over: the next task there tries it.
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
        """Cores of all tasks on it."""
        return sum(allocation.cores for allocation in self.allocations)

    @property
    def memory_set_aside(self) -> float:
        """Bytes of memory of all tasks on it."""
        return sum(allocation.memory for allocation in self.allocations)

    @property
    def tasks(self) -> int | None:
        """The number of live tasks of all controllers. None if unknown."""
        seen = self.observation
        silent = seen.error is not None or seen.engine is None or seen.engine.containers is None
        return None if silent else len(self.allocations)


@dataclass(frozen=True, slots=True)
class Cluster:
    """All nodes of the inventory, in its order, at the moment `at` (Unix seconds)."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    at: float = 0.0
