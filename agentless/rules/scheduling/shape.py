"""What matters of a task for where it fits: tasks of equal shape fit in equal places."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentless.model.nodes.node import NodeConfig
from agentless.model.scheduling.needs import is_type
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import Sharing
from agentless.model.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Shape:
    """The needs of a task in a form that can be looked up: `on` are pairs, `gpu_memory` is 0 for any.

    Cores, memory and time are not part of it: they are amounts, and who has capacity for more has capacity for less.
    `bare` is a task that runs on the node itself. `owner` is only told of those who have a reservation: all others are
    alike.
    """

    gpus: int
    gpu_memory: int
    gpu_types: tuple[str, ...]
    nodes: tuple[str, ...]
    exclude: tuple[str, ...]
    on: tuple[tuple[str, str], ...]
    numa: int | None
    indices: tuple[int, ...]
    exclusive: bool
    policy: str | None
    sharing: Sharing
    owner: str = ""
    env: bool = False
    bare: bool = False

    @property
    def share(self) -> bool:
        """Whether processes outside agentless may be on its GPUs."""
        return self.sharing.strangers

    def rank(self, name: str | None) -> int | None:
        """How well a GPU of this name will do, 0 the best; None when it will not."""
        if not self.gpu_types:
            return 0
        return next((rank for rank, pattern in enumerate(self.gpu_types) if is_type(name, pattern)), None)

    def rules_out(self, node: NodeConfig) -> str:
        """Why this is none of the nodes that were asked for, in words; empty when it is one."""
        if self.nodes and node.name not in self.nodes:
            return f"{node.name} is not among the nodes asked for"
        if node.name in self.exclude:
            return f"{node.name} is left out (--exclude)"
        for key, value in self.on:
            if node.labels.get(key) != value:
                return f"{node.name} has no label {key}={value}"
        if self.env and node.has_podman:
            return f"{node.name} has podman, which keeps no envs"
        return ""

    def is_kept_off(self, reservation: Reservation, begin: float, end: float) -> bool:
        """Whether a reservation keeps it off the node between these times, whichever GPUs it would get there.

        Who wants the node alone wants all of it.
        """
        return (self.exclusive or not reservation.gpus) and reservation.bars(self.owner, begin, end)


@dataclass(frozen=True, slots=True)
class Amounts:
    """Cores, bytes of memory, and for how many seconds; the length is `sure` unless it was learned."""

    cores: float
    memory: float
    length: float
    sure: bool = True

    def within(self, other: Amounts) -> bool:
        """Whether it is not more than the other in anything."""
        # A learned length may count as endless, so a sure one is no more than it, and not the other way round.
        lengths = self.length <= other.length and (self.sure or not other.sure)
        return self.cores <= other.cores and self.memory <= other.memory and lengths


def shape_of(spec: TaskSpec, owner: str = "") -> Shape:
    """The shape of a task, whose owner is told where somebody has reserved something for him."""
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
    )
