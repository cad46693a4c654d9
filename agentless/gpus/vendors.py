"""The vendors whose GPUs a node may have, as one: each is asked, and gives its own devices to a task.

A node has GPUs of one vendor. Where several answer, the GPUs are those of the first that has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentless.model.command import Result, Section
from agentless.model.nodes.device import Device, EngineName, Injection, Toolkit
from agentless.model.nodes.gpu import GpuFault, GpuSample, GpuTopology
from agentless.model.tasks.complaint import Known
from agentless.ports import GpuVendor


class GpuVendors:
    """All vendors, in the order in which the wiring names them; the first has what no vendor's name is on."""

    def __init__(self, vendors: Sequence[GpuVendor]) -> None:
        self._vendors = tuple(vendors)

    @property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """Those of the vendors that need one."""
        return tuple(vendor.toolkit for vendor in self._vendors if vendor.toolkit)

    # ------------------------------------------------------------------ asking

    def sections(self, *, topology: bool = False) -> tuple[Section, ...]:
        """The sections of all of them."""
        return tuple(section for vendor in self._vendors for section in vendor.sections(topology=topology))

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        """The sample of the vendor that has GPUs here; what another could not do is said of the node, too."""
        samples = [vendor.parse(sections) for vendor in self._vendors]
        found = next((sample for sample in samples if sample.gpus), samples[0])
        broken = next((sample for sample in (found, *samples) if sample.error), found)
        return found if broken is found else replace(found, error=broken.error, hung=broken.hung)

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, as the first knows that does."""
        return next(filter(None, (vendor.parse_topology(sections) for vendor in self._vendors)), None)

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        """The faults in the kernel log, None where it cannot be read."""
        found = [faults for vendor in self._vendors if (faults := vendor.parse_faults(sections)) is not None]
        return tuple(fault for faults in found for fault in faults) if found else None

    # ------------------------------------------------------------------ giving

    def injection(self, engine: EngineName, devices: Iterable[Device]) -> Injection:
        """What gives a task these devices, and hides those of every vendor that it is given none of."""
        ids = self._sorted(devices)
        each = [vendor.injection(engine, ids[vendor.name]) for vendor in self._vendors]
        return Injection(
            tuple(argument for one in each for argument in one.arguments),
            {name: value for one in each for name, value in one.environment.items()},
        )

    def hiding(self, variables: Iterable[str]) -> dict[str, str]:
        """What hides all GPUs from a container of an image with these variables, where the image would show them."""
        there = frozenset(variables)
        hidden: dict[str, str] = {}
        for vendor in self._vendors:
            if vendor.exposing & there:
                hidden.update(vendor.injection("docker", ()).environment)
        return hidden

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """What the stacks that hand out GPUs are known to complain of."""
        return tuple(known for vendor in self._vendors for known in vendor.complaints(engine))

    def _sorted(self, devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
        """The ids of devices by the names of their vendors."""
        ids: dict[str, tuple[str, ...]] = {vendor.name: () for vendor in self._vendors}
        for device in devices:
            name = device.vendor if device.vendor in ids else self._vendors[0].name
            ids[name] = (*ids[name], device.id)
        return ids
