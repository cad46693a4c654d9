"""GPU vendors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentless.model.command import Result, Section
from agentless.model.nodes.device import EngineName, Injection, Toolkit
from agentless.model.nodes.gpu import GpuFault, GpuSample, GpuTopology
from agentless.model.tasks.complaint import Known


class Probe(Protocol):
    """The part of a script that asks GPU drivers, and what the answer means."""

    def sections(self, *, topology: bool = False) -> tuple[Section, ...]:
        """The sections to run on the node; their names begin with the vendor's.

        With `topology` they also ask how the GPUs are joined and what the kernel log says of them, which is too much
        for every sample.
        """

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        """The sample in the answer. Pure; anything unreadable becomes None or `error`, never an exception."""

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, by the answer. Pure; None where it was not asked for or cannot be read."""

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        """The errors in the kernel log, from old to new. Pure; None where it was not asked for or cannot be read."""


class GpuVendor(Probe, Protocol):
    """A GPU vendor: what is asked of its driver, how its devices come to a task, and what its stack complains of.

    Its probe gives links their weights and faults their meaning. `name` is what `Device.vendor` has, `toolkit` None
    where an engine needs none, `exposing` the variables of an image for which a container may see all of its GPUs.
    """

    @property
    def name(self) -> str:
        """As in `Device.vendor`."""

    @property
    def toolkit(self) -> Toolkit | None:
        """What an engine needs for its GPUs."""

    @property
    def exposing(self) -> frozenset[str]:
        """Variables of images."""

    def injection(self, engine: EngineName, devices: Sequence[str]) -> Injection:
        """What gives a task the devices with these ids, or hides all of them where there are none."""

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """What its stack is known to complain of at a launch by this engine."""
