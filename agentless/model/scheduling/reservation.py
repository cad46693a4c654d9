"""Reservations: a part of a node is kept for an owner for some time, or for maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.moment import format_moment
from agentless.model.nodes.device import GpuNumber, overlap
from agentless.model.scheduling.needs import Needs


@dataclass(frozen=True, slots=True)
class Reservation:
    """GPUs of a node, or parts of them, as `nvidia-smi` counts now, or the whole node when there are none.

    `owner` is the owner whose tasks may use it: `ann@laptop`, or `ann` from any machine. None: maintenance.
    `begin` and `end` are Unix seconds, `end` is exclusive. `made_by` is the user who made it.
    """

    id: str
    node: str
    gpus: tuple[GpuNumber, ...]
    owner: str | None
    begin: float
    end: float
    reason: str = ""
    made_by: str = ""

    @property
    def target(self) -> str:
        """The reserved GPUs as a target: `node2::0,1`."""
        return str(Needs(gpus=len(self.gpus), nodes=(self.node,), indices=self.gpus))

    def lets(self, owner: str) -> bool:
        """Whether tasks of this owner may use it."""
        return self.owner in (owner, owner.partition("@")[0])

    def bars(self, owner: str, begin: float, end: float) -> bool:
        """Whether it blocks a task of this owner at some time from `begin` to `end`."""
        return begin < self.end and self.begin < end and not self.lets(owner)

    def covers(self, gpu: GpuNumber) -> bool:
        """Whether it includes the GPU with this number, or a part of it, or the GPU that it is a part of."""
        return not self.gpus or any(overlap(gpu, each) for each in self.gpus)

    def clashes(self, other: Reservation) -> bool:
        """Whether both reserve the same for different owners at the same time."""
        return (
            (self.node, self.owner != other.owner) == (other.node, True)
            and self.begin < other.end
            and other.begin < self.end
            and (not self.gpus or not other.gpus or any(map(self.covers, other.gpus)))
        )

    def __str__(self) -> str:
        """For whom, when and why: `reserved for ann from 2026-11-22 08:00 to 2026-11-22 18:00 (deadline)`."""
        when = f"from {format_moment(self.begin)} to {format_moment(self.end)}"
        return f"reserved for {self.owner or 'maintenance'} {when}" + (f" ({self.reason})" if self.reason else "")
