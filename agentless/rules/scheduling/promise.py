"""Where and when a task will start, as it is told and as an entry of a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.rules.scheduling.gpu_timeline import GpuTimeline
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.node_timeline import NodeTimeline
from agentless.rules.scheduling.shape import Amounts, Shape


@dataclass(frozen=True, slots=True)
class Promise:
    """Where a task will start, and when at the latest (Unix seconds). None: when a task without a limit ends.

    `about`: the time is an estimate, from earlier runs of tasks without a limit.
    """

    node: str
    start: float | None
    gpu_uuids: tuple[str, ...] = ()
    about: bool = False

    @property
    def firm(self) -> bool:
        """Whether it names a certain time."""
        return self.start is not None and not self.about


@dataclass(frozen=True, slots=True)
class Place:
    """A promise as an entry of a timeline."""

    node: NodeTimeline
    shape: Shape
    amounts: Amounts
    gpus: list[GpuTimeline]
    load: Load
    promise: Promise


def is_afterwards(place: Place, owner: str) -> bool:
    """Whether the promise is to another owner, for the time after a reservation of this owner."""
    return any(
        each.begin <= place.node.now < each.end <= place.load.begin
        and each.lets(owner)
        and not each.lets(place.shape.owner)
        and (place.shape.exclusive or not each.gpus or any(each.covers(gpu.number) for gpu in place.gpus))
        for each in place.node.reservations
    )
