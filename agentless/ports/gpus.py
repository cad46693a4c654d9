"""GPU vendors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentless.model.command import Result, Section
from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.complaint import Known
from agentless.model.nodes.engine import EngineName, Injection, Toolkit, Way
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.trial import Proof


class ScriptRenderer(Protocol):
    """Renders the scripts in `templates/`."""

    def script(self, name: str, /, **values: Any) -> str:
        """The shell text that template `name` makes of `values`."""


class Probe(Protocol):
    """The part of a script that asks GPU drivers, and what the answer means."""

    @property
    def pci(self) -> tuple[str, ...]:
        """How /sys describes the PCI functions that are GPUs: the vendor, a colon, and how the class begins."""

    def sections(self, renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
        """The sections to run on the node; their names begin with the vendor's, their scripts are templates.

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
    """A GPU vendor: its probe, how tasks get its devices, and the known complaints of its software.

    The probe also weighs links (`GpuTopology.links`) and says what a fault means (`GpuFault.meaning`).
    The ids of its devices are letters, digits and hyphens. The first eight letters and digits behind a prefix like
    `GPU-` have to differ on a node: claims between engines only hold so many.
    """

    @property
    def name(self) -> str:
        """The vendor's name in `Device.vendor`, state files and labels."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that are run on a node to ask for its GPUs."""

    @property
    def toolkit(self) -> Toolkit | None:
        """What an engine needs to hand out its GPUs, None if nothing."""

    @property
    def exposing(self) -> frozenset[str]:
        """Variables of an image that may show all GPUs to its containers."""

    @property
    def device_mounts(self) -> tuple[str, ...]:
        """How paths in a container begin at which its software takes a mount for the request of a device.

        They contain `-container-devices`, by which the inventory knows them.
        """

    def reserved(self, engine: EngineName) -> tuple[str, ...]:
        """Variables that say which devices a task of this engine has; a task may not set them itself."""

    def injection(self, engine: EngineName, devices: Sequence[str], way: Way | None = None) -> Injection:
        """How a task gets the devices with these ids. Without any, how all of them are hidden from it.

        `way` is how this engine hands out devices, None if that is unknown.
        """

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """Known complaints at a launch by this engine."""

    def checkup(self, renderer: ScriptRenderer) -> tuple[Section, ...]:
        """The sections with what `doctor` wants to know of its GPUs; none if nothing."""

    def checks(self, sections: Mapping[str, Result], node: Node, system: System) -> VendorChecks:
        """The checks in the answer, none for a node without its GPUs. Pure."""

    def look(self, renderer: ScriptRenderer) -> str:
        """A script for a container that prints which of its GPUs that sees."""

    def proof(self, saw: str, gpu: GpuReading, sections: Mapping[str, Result]) -> Proof:
        """Whether a container that printed this sees exactly this GPU. `sections` are the node's own. Pure."""
