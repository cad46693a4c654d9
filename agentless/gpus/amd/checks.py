"""Checks of AMD's driver, its device files and who may use them."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.gpus.amd.card import VENDOR
from agentless.gpus.amd.checkup import AmdCheckup
from agentless.model.nodes.check import Check, VendorChecks, ok, skipped
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.units import counted, format_indices
from agentless.rules.nodes.checks import remedies


def checks(node: Node, found: AmdCheckup, system: System) -> VendorChecks:
    """All of them: none on a node without AMD cards."""
    sample = node.observation.sample or GpuSample()
    ours = [gpu for gpu in sample.gpus if gpu.vendor == VENDOR]
    if not found.bus and not ours and not (found.wsl and found.tools):
        return VendorChecks()
    before = (*_wsl(found), *_bus(found, system), *_kfd(found, ours, system))
    after = (
        *_groups(node, found, system),
        *_ecc(ours, system),
        *_faults(node, ours, system),
        *_topology(node, ours),
    )
    return VendorChecks(before, after)


def _wsl(found: AmdCheckup) -> Iterator[Check]:
    if found.wsl:
        why = "ROCm in WSL2 has no /dev/kfd, so a GPU cannot be given to one container and withheld from another."
        wrong = "AMD GPUs in WSL2 are not supported"
        yield Check("amd-wsl", "failed", "WSL2", wrong, "# Boot Linux on the machine to use its AMD GPUs.", why)


def _bus(found: AmdCheckup, system: System) -> Iterator[Check]:
    """Whether amdgpu drives the cards that are there."""
    if not found.bus or found.wsl:
        return
    seen = counted(len(found.bus), "AMD GPU") + " on the bus"
    others = {module or "no driver" for module in found.bus.values() if module != "amdgpu"}
    root = remedies.sudo(system)
    if not others:
        yield ok("amd-bus", f"{seen}, driven by amdgpu")
    elif "vfio-pci" in others:
        why = "vfio-pci keeps a card for virtual machines."
        yield Check("amd-bus", "warning", seen, "driven by vfio-pci", "lspci -nnk -d 1002:", why)
    else:
        wrong = f"driven by {', '.join(sorted(others))}"
        fix = f"{root}modprobe amdgpu\n{root}dmesg | grep -i amdgpu | tail"
        yield Check("amd-bus", "failed", seen, wrong, fix, "Without amdgpu, a card cannot be given to a task.")


def _kfd(found: AmdCheckup, ours: list[GpuReading], system: System) -> Iterator[Check]:
    """Whether there is the device through which programs compute."""
    if found.wsl or "amdgpu" not in found.bus.values():
        return
    barred = [gpu for gpu in ours if gpu.barred and gpu.parent is None]
    if "/dev/kfd" in found.devices and barred:
        wrong = f"{_named(barred)}: {barred[0].barred}"
        fix = f"{remedies.sudo(system)}dmesg | grep -i -e kfd -e amdgpu | tail"
        why = "ROCm does not run on every card, and a card whose start failed is not in /sys/class/kfd."
        yield Check("amd-kfd", "failed", f"/dev/kfd without {_named(barred)}", wrong, fix, why)
        return
    if "/dev/kfd" in found.devices:
        renders = counted(len(found.devices) - 1, "render node")
        tools = ", ".join(each for each in found.tools if each != "rocm")
        yield ok("amd-kfd", f"/dev/kfd and {renders}" + (f"; {tools}" if tools else ""))
        return
    fix = f"{remedies.sudo(system)}dmesg | grep -i kfd | tail\n"
    fix += "# Install the driver of ROCm: https://rocm.docs.amd.com/projects/install-on-linux"
    why = "Programs compute through /dev/kfd. Without it, cards only show pictures."
    verdict = "failed" if ours else "warning"
    yield Check("amd-kfd", verdict, "no /dev/kfd", "the driver has no /dev/kfd", fix, why)  # type: ignore[arg-type]


def _groups(node: Node, found: AmdCheckup, system: System) -> Iterator[Check]:
    """Whether the login may use the devices, as its tasks without a container and a rootless engine have to."""
    kfd = found.devices.get("/dev/kfd")
    if kfd is None or not found.user:
        return
    if kfd.is_open or found.is_root:
        yield ok("amd-groups", f"{found.user} may use /dev/kfd ({kfd.owner}:{kfd.group} {kfd.mode})")
        return
    engine = node.observation.engine
    needed = bool(engine and engine.rootless)
    missing = [name for name in ("video", "render") if name in found.groups and name not in found.member]
    names = ",".join(missing) or kfd.group
    fix = f"{remedies.sudo(system)}usermod -aG {names} {found.user}\n# The next login has them; open sessions do not."
    why = "Containers of a rootless engine and tasks with --container NULL use a GPU as this user."
    wrong = f"{found.user} may not use /dev/kfd ({kfd.owner}:{kfd.group} {kfd.mode})"
    yield Check("amd-groups", "failed" if needed else "warning", wrong, wrong, fix, why)


def _ecc(ours: list[GpuReading], system: System) -> Iterator[Check]:
    bad = [gpu for gpu in ours if gpu.ecc_uncorrected and gpu.parent is None]
    if bad:
        root, count = remedies.sudo(system), sum(gpu.ecc_uncorrected or 0 for gpu in bad)
        wrong = f"{count} uncorrected RAS error{'s' if count > 1 else ''} on {_named(bad)}"
        fix = "amd-smi metric --ecc\n"
        fix += "\n".join(f"{root}amd-smi reset --gpureset --gpu {gpu.pci_bus_id}  # nothing may use it" for gpu in bad)
        why = "Results of tasks on it cannot be trusted. If it comes back after a reset, the card has to be replaced."
        yield Check("amd-ras", "failed", wrong, wrong, fix, why)
    elif ours:
        known = any(gpu.ecc_uncorrected is not None for gpu in ours)
        yield ok("amd-ras", "no uncorrected errors" if known else "not supported")


def _faults(node: Node, ours: list[GpuReading], system: System) -> Iterator[Check]:
    faults = node.observation.faults
    by_bus = {gpu.pci_bus_id: gpu for gpu in ours if gpu.parent is None}
    bad = [fault for fault in faults or () if fault.meaning and fault.pci_bus_id in by_bus]
    if faults is None:
        yield skipped("amd-faults", "the kernel log cannot be read")
    elif bad:
        last = bad[-1]
        wrong = f"{last.name} on GPU {by_bus[last.pci_bus_id].index}: {last.meaning}"
        root = remedies.sudo(system)
        fix = f"{root}amd-smi reset --gpureset --gpu {last.pci_bus_id}  # nothing may use it\n"
        fix += f"# If it comes again: {root}reboot, then check the card"
        why = "The driver reported a fault after which the GPU has to be reset or the card checked."
        yield Check("amd-faults", "failed", wrong, wrong, fix, why)
    else:
        yield ok("amd-faults", "none since boot")


def _topology(node: Node, ours: list[GpuReading]) -> Iterator[Check]:
    cards = [gpu.index for gpu in ours if gpu.parent is None]
    topology = node.observation.topology
    if len(cards) < 2 or topology is None:
        return
    links = {pair: weight for pair, weight in topology.links.items() if set(pair) <= set(cards)}
    by_xgmi = sum(weight > 5 for weight in links.values())
    total = len(cards) * (len(cards) - 1) // 2
    yield ok("amd-links", f"{by_xgmi} of {total} pairs are joined by XGMI")


def _named(gpus: list[GpuReading]) -> str:
    return f"GPU {format_indices(gpu.index for gpu in gpus)}"
