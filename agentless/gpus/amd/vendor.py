"""AMD as a `GpuVendor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentless.gpus.amd import checks, checkup, complaints, faults, probe, proof, topology
from agentless.gpus.amd.card import VENDOR
from agentless.gpus.amd.injection import ROCR, VISIBLE, injection
from agentless.model.command import Result, Section
from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.complaint import Known
from agentless.model.nodes.engine import EngineName, Injection, Toolkit, Way
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.trial import Proof
from agentless.ports import ScriptRenderer


class Amd:
    """Puts the parts of this folder together."""

    name = VENDOR
    programs = ("amd-smi", "rocm-smi")
    # Display controllers and processing accelerators: cards for data centres have 0x0380 or 0x1200.
    pci = ("0x1002:0x03", "0x1002:0x12")
    # No engine needs one: devices are given by their files. Where there is a CDI list, it is used.
    toolkit: Toolkit | None = Toolkit(VENDOR, "", (), "amd.com/gpu", is_optional=True)
    # If AMD's runtime is the default, it gives GPUs to a container whose image has this.
    exposing = frozenset({VISIBLE})
    device_mounts = ()

    def sections(self, renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
        """One section, two with `topology`. They need no root."""
        found = (probe.sections(renderer, links=topology),)
        return (*found, faults.sections(renderer)) if topology else found

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        """The sample in the answer, with its `error` in one sentence. If a process may be missing, all are unknown."""
        return probe.parse(sections)

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, if that was asked for and answered."""
        answer = sections.get(VENDOR)
        return topology.parse(answer) if answer else None

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        """The faults in the kernel log, if that was asked for and may be read."""
        return faults.parse(sections)

    def reserved(self, engine: EngineName) -> tuple[str, ...]:
        """ROCm reads one variable in any process. In a container, a task may choose among its own GPUs by it."""
        return (ROCR,) if engine == "systemd" else (VISIBLE,)

    def injection(self, engine: EngineName, devices: Sequence[str], way: Way | None = None) -> Injection:
        """The device files of these GPUs and the groups that may use them, or CDI devices with these files."""
        return injection(engine, devices, way)

    def checkup(self, renderer: ScriptRenderer) -> tuple[Section, ...]:
        """One section; it needs no root."""
        return checkup.sections(renderer)

    def checks(self, sections: Mapping[str, Result], node: Node, system: System) -> VendorChecks:
        """The checks in the answer."""
        return checks.checks(node, checkup.parse(sections), system)

    def look(self, renderer: ScriptRenderer) -> str:
        """Lists the devices of AMD's GPUs."""
        return renderer.script("amd-look.sh.j2")

    def proof(self, saw: str, gpu: GpuReading, sections: Mapping[str, Result]) -> Proof:
        """Whether a container sees exactly the render nodes of this GPU."""
        return proof.proof(saw, gpu, checkup.parse(sections))

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """Complaints of the lookup of devices, and of engines that cannot hand them out."""
        del engine  # each is known by its words
        return complaints.known()
