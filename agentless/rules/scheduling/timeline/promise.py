"""Where and when a task will start, as it is told and as an entry of a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.shape import Amounts, Shape
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline
from agentless.rules.scheduling.timeline.node import NodeTimeline


@dataclass(frozen=True, slots=True)
class Promise:
    """Where a task will start, and when at the latest (Unix seconds). None: when a task without a limit ends.

    `about`: the time is an estimate, from earlier runs of tasks without a limit, or because it relies on tasks that
    give way to others. `victims` are tasks, by id, that give way for it, and perhaps for others, too.
    """

    node: str
    start: float | None
    gpu_uuids: tuple[str, ...] = ()
    about: bool = False
    victims: tuple[str, ...] = ()

    @property
    def firm(self) -> bool:
        """Whether it names a certain time."""
        return self.start is not None and not self.about


@dataclass(frozen=True, slots=True)
class Coming:
    """A place for a task at a time (Unix seconds), where these tasks give way, by id."""

    moment: float
    node: NodeTimeline
    gpus: list[GpuTimeline]
    victims: tuple[str, ...] = ()

    def promise(self, *, about: bool = False) -> Promise:
        """The place as it is told."""
        start = None if self.moment >= FAR else self.moment
        uuids = tuple(gpu.uuid for gpu in self.gpus)
        return Promise(self.node.name, start, uuids, about and start is not None, self.victims)


@dataclass(frozen=True, slots=True)
class Place:
    """A promise as an entry of a timeline."""

    node: NodeTimeline
    shape: Shape
    amounts: Amounts
    gpus: list[GpuTimeline]
    load: Load
    promise: Promise

    @property
    def coming(self) -> Coming:
        """The same as a place that is found."""
        return Coming(self.load.begin, self.node, self.gpus, self.promise.victims)


def is_afterwards(place: Place, owner: str) -> bool:
    """Whether the promise is to another owner, for the time after a reservation of this owner."""
    return any(
        each.begin <= place.node.now < each.end <= place.load.begin
        and each.lets(owner)
        and not each.lets(place.shape.owner)
        and (place.shape.exclusive or not each.gpus or any(each.covers(gpu.number) for gpu in place.gpus))
        for each in place.node.reservations
    )
