"""Several GPU vendors behind one interface: asks each, and gives a task the devices of each.

A node may have GPUs of several. Those of the first vendor have the first numbers, and those of the next go on from
there. Which vendors exist is `VENDORS` in `controller/app.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.model.command import Result, Section
from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.complaint import Known
from agentless.model.nodes.device import Device
from agentless.model.nodes.engine import EngineName, Injection, Toolkit
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.node import EngineFacts
from agentless.model.nodes.trial import Proof
from agentless.ports import GpuVendor, ScriptRenderer

_NO_FILTER = ("--security-opt", "seccomp=unconfined")


class GpuVendors:
    """All vendors in the order of the wiring. A device without a vendor's name belongs to the first."""

    def __init__(self, vendors: Sequence[GpuVendor]) -> None:
        self._vendors = tuple(vendors)

    @property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits of the vendors that need one."""
        return tuple(vendor.toolkit for vendor in self._vendors if vendor.toolkit)

    # ------------------------------------------------------------------ asking

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs of all vendors that are run on a node."""
        return tuple(program for vendor in self._vendors for program in vendor.programs)

    @property
    def pci(self) -> tuple[str, ...]:
        """The PCI functions that are GPUs of any vendor."""
        return tuple(kind for vendor in self._vendors for kind in vendor.pci)

    def sections(self, renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
        """The sections of all vendors."""
        return tuple(section for vendor in self._vendors for section in vendor.sections(renderer, topology=topology))

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        """The samples of all vendors as one. What one vendor could not do makes the GPUs of that vendor unknown."""
        samples = [vendor.parse(sections) for vendor in self._vendors]
        having = [sample for sample in samples if sample.gpus]
        broken = next((sample for sample in (*having, *samples) if sample.error), None)
        if not having:
            return replace(broken, processes=None) if broken else samples[0]
        if len(having) < 2:
            found = having[0]
            # Without the GPUs of a vendor before it, its numbers are not known.
            before = samples[: samples.index(found)]
            lost = next((sample for sample in before if sample.error), None)
            found = replace(found, processes=None) if lost else found
            return replace(found, error=broken.error, hung=broken.hung) if broken and broken is not found else found
        return _merged(samples, having, broken or GpuSample())

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, of all vendors that know. GPUs of two vendors have no link."""
        links: dict[tuple[int, int], int] = {}
        numa: dict[int, int] = {}
        first, known = 0, False
        for vendor in self._vendors:
            if found := vendor.parse_topology(sections):
                known = True
                links |= {(one + first, other + first): weight for (one, other), weight in found.links.items()}
                numa |= {index + first: place for index, place in found.numa.items()}
            first += _count(vendor.parse(sections))
        return GpuTopology(links, numa) if known else None

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        """The faults of all vendors in the kernel log, None if it cannot be read."""
        found = [faults for vendor in self._vendors if (faults := vendor.parse_faults(sections)) is not None]
        return tuple(fault for faults in found for fault in faults) if found else None

    def checkup(self, renderer: ScriptRenderer) -> tuple[Section, ...]:
        """What `doctor` asks, of all vendors."""
        return tuple(section for vendor in self._vendors for section in vendor.checkup(renderer))

    def checks(self, sections: Mapping[str, Result], node: Node, system: System) -> VendorChecks:
        """The checks of all vendors. The toolkit is that of the vendor that has GPUs there."""
        found = [vendor.checks(sections, node, system) for vendor in self._vendors]
        return VendorChecks(
            tuple(check for each in found for check in each.before),
            tuple(check for each in found for check in each.after),
            next((each.install for each in found if each.install), ""),
        )

    def look(self, renderer: ScriptRenderer) -> str:
        """A script for a container that prints which GPUs it sees, of any vendor."""
        return "\n".join(vendor.look(renderer) for vendor in self._vendors)

    def proof(self, saw: str, gpu: GpuReading, sections: Mapping[str, Result]) -> Proof:
        """Whether a container that printed this sees exactly this GPU, as its vendor judges."""
        vendor = next((each for each in self._vendors if each.name == gpu.vendor), self._vendors[0])
        return vendor.proof(saw, gpu, sections)

    # ------------------------------------------------------------------ giving

    def injection(
        self,
        engine: EngineName,
        devices: Iterable[Device],
        facts: EngineFacts | None = None,
        *,
        unconfined: Collection[str] = (),
    ) -> Injection:
        """Arguments and variables that give a task these devices, and hide the GPUs of all other vendors.

        `facts` say in which way the engine hands out devices. A container with GPUs of a vendor in `unconfined` has no
        filter of system calls.
        """
        ids, toolkits = self._sorted(devices), facts.toolkits if facts else {}
        ways = {name: toolkit.way for name, toolkit in toolkits.items()}
        each = [vendor.injection(engine, ids[vendor.name], ways.get(vendor.name)) for vendor in self._vendors]
        return Injection(
            (
                *(argument for one in each for argument in one.arguments),
                *(_NO_FILTER if engine != "systemd" and any(ids.get(vendor) for vendor in unconfined) else ()),
            ),
            {name: value for one in each for name, value in one.environment.items()},
            next((one.lookup for one in each if one.lookup), None),
        )

    def reserved(self, engine: EngineName) -> tuple[str, ...]:
        """The variables of all vendors that a task of this engine may not set itself."""
        return tuple(name for vendor in self._vendors for name in vendor.reserved(engine))

    @property
    def device_mounts(self) -> tuple[str, ...]:
        """How paths in a container begin at which a mount gives devices of any vendor."""
        return tuple(path for vendor in self._vendors for path in vendor.device_mounts)

    def hiding(self, variables: Iterable[str]) -> dict[str, str]:
        """Variables that hide all GPUs from a container whose image has these variables and would show them."""
        there = frozenset(variables)
        hidden: dict[str, str] = {}
        for vendor in self._vendors:
            if vendor.exposing & there:
                hidden.update(vendor.injection("docker", ()).environment)
        return hidden

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """The known complaints of all vendors' GPU stacks."""
        return tuple(known for vendor in self._vendors for known in vendor.complaints(engine))

    def _sorted(self, devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
        """The ids of the devices, by vendor."""
        ids: dict[str, tuple[str, ...]] = {vendor.name: () for vendor in self._vendors}
        for device in devices:
            name = device.vendor if device.vendor in ids else self._vendors[0].name
            ids[name] = (*ids[name], device.id)
        return ids


def _count(sample: GpuSample) -> int:
    """How many numbers the GPUs of a sample have."""
    return max((gpu.index for gpu in sample.gpus), default=-1) + 1


def _merged(samples: Sequence[GpuSample], having: Sequence[GpuSample], broken: GpuSample) -> GpuSample:
    """The samples of several vendors as one. `having` are those with GPUs, `broken` is one with an error."""
    gpus: list[GpuReading] = []
    first, lost = 0, ""
    for sample in samples:
        hidden = lost or ("" if sample.processes is not None else sample.error or "cannot read its processes")
        gpus += [replace(gpu, index=gpu.index + first, hidden=hidden) for gpu in sample.gpus]
        first += _count(sample)
        if sample.error and not sample.gpus:
            lost = sample.error
    known = [process for sample in having for process in sample.processes or ()]
    return GpuSample(
        tuple(gpus),
        None if all(gpu.hidden for gpu in gpus) else tuple(known),
        broken.error,
        broken.hung,
        tuple(bus for sample in samples for bus in sample.lost),
        next(sample.lister for sample in having),
        any(sample.mismatch for sample in samples),
    )
