"""NVIDIA as a `GpuVendor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentless.gpus.nvidia import checks, checkup, faults, probe, proof, topology
from agentless.gpus.nvidia.complaints import LIST_DEVICES, known
from agentless.model.command import Result, Section
from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.complaint import Known
from agentless.model.nodes.engine import EngineName, Injection, Toolkit, Way
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.trial import Proof
from agentless.ports import ScriptRenderer

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_NONE = "void"
_CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CDI = "nvidia.com/gpu"
_INSTALL = "install nvidia-container-toolkit, then run"


class Nvidia:
    """Puts the parts of this folder together."""

    name = probe.VENDOR
    programs = ("nvidia-smi",)
    # Display controllers: its audio and USB functions, and NVSwitches, are no GPUs.
    pci = ("0x10de:0x03",)
    toolkit: Toolkit | None = Toolkit(
        vendor=probe.VENDOR,
        runtime="nvidia",
        programs=("nvidia-container-runtime-hook",),
        cdi=_CDI,
        fixes={
            "docker": f"{_INSTALL}: sudo nvidia-ctk runtime configure && sudo systemctl restart docker",
            "podman": f"{_INSTALL}: {LIST_DEVICES}",
        },
        lists=LIST_DEVICES,
    )
    # If NVIDIA's runtime is the default, it gives all GPUs to a container whose image has one of these.
    exposing = frozenset({_VISIBLE, "CUDA_VERSION"})

    # With accept-nvidia-visible-devices-as-volume-mounts; what follows is a device, with or without a slash before it.
    device_mounts = ("/var/run/nvidia-container-devices",)

    def sections(self, renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
        """One section, two with `topology`. They need no root, and start one short program per process on a GPU."""
        return probe.sections(renderer, topology=topology)

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        """The sample in the answer, with its `error` in one sentence. If anything is wrong, processes are unknown."""
        return probe.parse(sections)

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        """How the GPUs are joined, if that was asked for and answered."""
        answer = sections.get(probe.VENDOR)
        return topology.parse(answer.out) if answer else None

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        """The Xids in the kernel log, if that was asked for and may be read."""
        return faults.parse(sections)

    def reserved(self, engine: EngineName) -> tuple[str, ...]:
        """NVIDIA's runtime reads one in a container, CUDA another one in any process."""
        return (_CUDA_VISIBLE,) if engine == "systemd" else (_VISIBLE,)

    def injection(self, engine: EngineName, devices: Sequence[str], way: Way | None = None) -> Injection:
        """Docker has an option for GPUs, if it has a hook of NVIDIA's, and podman uses CDI.

        CUDA reads variables in a process without a container.
        """
        names = ",".join(devices)
        if engine == "systemd":
            return Injection((), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", _CUDA_VISIBLE: names})
        # Always set, because the image may ask for all GPUs.
        if engine == "podman" or way == "cdi":
            return Injection(
                tuple(word for uuid in devices for word in ("--device", f"{_CDI}={uuid}")), {_VISIBLE: _NONE}
            )
        # The engine needs literal double quotes around several.
        return Injection(("--gpus", f'"device={names}"') if devices else (), {_VISIBLE: names or _NONE})

    def checkup(self, renderer: ScriptRenderer) -> tuple[Section, ...]:
        """One section; it needs no root."""
        return checkup.sections(renderer, _CDI)

    def checks(self, sections: Mapping[str, Result], node: Node, system: System) -> VendorChecks:
        """The checks in the answer."""
        return checks.checks(node, checkup.parse(sections), system)

    def look(self, renderer: ScriptRenderer) -> str:
        """Lists GPUs, devices and variables."""
        return renderer.script("nvidia-look.sh.j2")

    def proof(self, saw: str, gpu: GpuReading, sections: Mapping[str, Result]) -> Proof:
        """Whether a container sees exactly this GPU."""
        return proof.proof(saw, gpu, checkup.parse(sections))

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        """Complaints of its toolkit, and of engines that cannot hand out its GPUs."""
        del engine  # each is known by its words
        return known()
