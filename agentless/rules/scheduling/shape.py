"""The part of a request that decides where a task fits. Tasks of equal shape fit in the same places."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import is_slice_type, is_type
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import Sharing
from agentless.model.tasks.spec import TaskSpec


class Shape(NamedTuple):
    """The needs of a task as a key for lookups: `on` are pairs, `gpu_memory` is 0 for any.

    Cores, memory and time are `Amounts`: a node with capacity for more has capacity for less. `bare` is a task that
    runs on the node itself, `slices` one that can have a slice of a GPU, `preemptible` one that gives way to
    others. `owner` is only set for owners with a reservation, since it makes no difference for others.
    """

    gpus: int
    gpu_memory: int
    gpu_types: tuple[str, ...]
    nodes: tuple[str, ...]
    exclude: tuple[str, ...]
    on: tuple[tuple[str, str], ...]
    numa: int | None
    indices: tuple[GpuNumber, ...]
    exclusive: bool
    policy: str | None
    sharing: Sharing
    owner: str = ""
    env: bool = False
    bare: bool = False
    slices: bool = False
    preemptible: bool = False

    @property
    def share(self) -> bool:
        """Whether processes outside agentless may be on its GPUs."""
        return self.sharing.strangers

    def rank(self, name: str | None, *, part: bool = False) -> int | None:
        """The preference for a GPU of this model, or a `part` of one; 0 is the best. None if it does not match.

        A slice is only given to who asks for one, and then before a whole GPU.
        """
        if self.indices:
            return 0
        if not self.gpu_types:
            return int(self.slices) if not part else 0 if self.slices else None
        patterns = enumerate(self.gpu_types)
        return next((rank for rank, each in patterns if is_slice_type(each) == part and is_type(name, each)), None)

    def rules_out(self, node: NodeConfig) -> str:
        """Why this node is not among the requested ones, in words. Empty if it is."""
        if self.nodes and node.name not in self.nodes:
            return f"{node.name} is not among the requested nodes"
        if node.name in self.exclude:
            return f"{node.name} is excluded (--exclude)"
        for key, value in self.on:
            if node.labels.get(key) != value:
                return f"{node.name} has no label {key}={value}"
        if self.env and not node.has_envs:
            return f"{node.name} uses {node.engine_title}, which does not support envs"
        return ""

    def is_kept_off(self, reservation: Reservation, begin: float, end: float) -> bool:
        """Whether a reservation blocks the whole node for the task between these times.

        A task that wants the node alone is blocked by a reservation of any GPU.
        """
        return (self.exclusive or not reservation.gpus) and self.is_barred(reservation, begin, end)

    def is_barred(self, reservation: Reservation, begin: float, end: float) -> bool:
        """Whether what is reserved is not for the task between these times. It is lent to one that gives way."""
        lent = self.preemptible and reservation.owner is not None
        return not lent and reservation.bars(self.owner, begin, end)


class Amounts(NamedTuple):
    """Cores, bytes of memory, and the length in seconds, which is `sure` unless it was estimated.

    After `gives_way` seconds the task can be gone, if somebody needs its place who was promised it before.
    """

    cores: float
    memory: float
    length: float
    sure: bool = True
    gives_way: float = math.inf

    def within(self, other: Amounts) -> bool:
        """Whether no amount is larger than in the other."""
        # An estimated length may count as endless, so it is never within a sure one.
        lengths = self.length <= other.length and (self.sure or not other.sure)
        shorter = lengths and self.gives_way <= other.gives_way
        return self.cores <= other.cores and self.memory <= other.memory and shorter


def shape_of(spec: TaskSpec, owner: str = "") -> Shape:
    """The shape of a task. `owner` is only given for an owner with a reservation."""
    needs = spec.needs
    return Shape(
        needs.gpus,
        needs.gpu_memory or 0,
        needs.gpu_types,
        needs.nodes,
        needs.exclude,
        tuple(sorted(needs.on.items())) if needs.on else (),
        needs.numa,
        needs.indices,
        needs.exclusive,
        needs.policy,
        replace(needs.sharing, strangers=True) if spec.share else needs.sharing,
        owner,
        spec.image_id is not None,
        spec.on_node_itself,
        needs.slices,
        spec.terms.preemptible,
    )
