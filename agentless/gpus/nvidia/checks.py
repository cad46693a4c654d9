"""Checks of NVIDIA's driver, cards and container toolkit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agentless.gpus.nvidia import probe
from agentless.gpus.nvidia.checkup import NvidiaCheckup
from agentless.gpus.nvidia.complaints import LIST_DEVICES
from agentless.model.nodes.check import Check, VendorChecks, ok, skipped
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.units import counted, format_indices
from agentless.rules.nodes.checks import remedies
from agentless.rules.nodes.checks.engine_remedies import setup_of
from agentless.rules.nodes.gpu_access import why_no_container

_HOT = 90
"""°C from which data centre cards slow down."""
_UTILITIES = {
    "dnf": "nvidia-driver-cuda",
    "zypper": "nvidia-compute-utils-G06",
}
"""The packages with nvidia-smi, where they have another name."""
_KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
_SOURCE = "https://nvidia.github.io/libnvidia-container"


def checks(node: Node, found: NvidiaCheckup, system: System) -> VendorChecks:
    """All of them; those of the engine are after the driver."""
    sample = node.observation.sample or GpuSample()
    sample = replace(sample, gpus=tuple(gpu for gpu in sample.gpus if gpu.vendor in ("", probe.VENDOR)))
    before = (*_bus(found, sample, system), *_match(found, sample, system))
    after = (
        *_persistence(found, sample, system),
        *_ecc(found, sample, system),
        *_faults(node, sample, system),
        *_heat(found, sample),
        *_mig(sample, system),
        *_topology(node, sample),
        *_runtime(node, found, sample, system),
    )
    return VendorChecks(before, after if sample.gpus else (), install_toolkit(node, system))


def install_toolkit(node: Node, system: System) -> str:
    """The commands that install the container toolkit and tell the engine of it."""
    root, package, setup = remedies.sudo(system), "nvidia-container-toolkit", setup_of(node, system)
    sources = {
        "apt": (
            f"curl -fsSL {_SOURCE}/gpgkey | {root}gpg --dearmor -o {_KEYRING}",
            (
                f"curl -fsSL {_SOURCE}/stable/deb/nvidia-container-toolkit.list | "
                f"sed 's#deb https://#deb [signed-by={_KEYRING}] https://#' | "
                f"{root}tee /etc/apt/sources.list.d/nvidia-container-toolkit.list"
            ),
        ),
        "dnf": (
            (
                f"curl -fsSL {_SOURCE}/stable/rpm/nvidia-container-toolkit.repo | "
                f"{root}tee /etc/yum.repos.d/nvidia-container-toolkit.repo"
            ),
        ),
        "zypper": (f"{root}zypper addrepo {_SOURCE}/stable/rpm/nvidia-container-toolkit.repo",),
    }
    engine = [list_devices(system)]
    if setup.rootless and not setup.has_podman:
        engine = [
            "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json",
            f"{root}nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
            setup.restart(),
        ]
    elif not setup.has_podman:
        engine = [f"{root}nvidia-ctk runtime configure --runtime=docker", setup.restart()]
    return "\n".join((*sources.get(system.manager, ()), remedies.install(system, package), *engine))


def list_devices(system: System) -> str:
    """The command that makes the CDI list of GPUs."""
    return LIST_DEVICES.removeprefix("sudo ") if system.is_root else LIST_DEVICES


def _bus(found: NvidiaCheckup, sample: GpuSample, system: System) -> Iterator[Check]:
    """Whether NVIDIA's module drives the cards that are there."""
    if not found.bus:
        return
    seen = counted(len(found.bus), "NVIDIA GPU") + " on the bus"
    others = {bus: module for bus, module in found.bus.items() if module != "nvidia"}
    if not others and not sample.gpus and sample.error is None:
        package = _UTILITIES.get(system.manager, "nvidia-utils")
        if system.id == "ubuntu" and found.module:
            package = f"nvidia-utils-{found.module.partition('.')[0]}"
        fix = remedies.install(system, "nvidia-smi" if system.id == "debian" else package)
        why = "agentless asks the driver by nvidia-smi. Without it, the node counts as one without GPUs."
        yield Check("bus", "failed", seen, "the driver has the cards, but there is no nvidia-smi on PATH", fix, why)
        return
    if not others:
        yield ok("bus", f"{seen}, driven by nvidia")
        return
    root = remedies.sudo(system)
    modules = sorted({module or "no driver" for module in others.values()})
    wrong = f"{counted(len(others), 'GPU')} of {len(found.bus)} driven by {', '.join(modules)}"
    if "nouveau" in modules or (found.nouveau and not sample.gpus):
        fix = (
            "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | "
            f"{root}tee /etc/modprobe.d/blacklist-nouveau.conf\n{remedies.rebuild_initramfs(system)}\n"
            f"{remedies.reboot(system)}"
        )
        yield Check("bus", "failed", seen, wrong, fix, "nouveau holds the cards, so NVIDIA's driver cannot have them.")
    elif "vfio-pci" in modules:
        why = "vfio-pci keeps a card for virtual machines."
        yield Check("bus", "warning", seen, wrong, "lspci -nnk -d 10de:  # shows which driver has them", why)
    elif found.secure_boot and not found.module:
        fix = f"{root}mokutil --import /var/lib/shim-signed/mok/MOK.der  # Ubuntu; then reboot and enroll the key\n"
        fix += "# Or turn secure boot off in the firmware."
        why = "Secure boot lets the kernel load signed modules only, and NVIDIA's is not signed by a known key."
        yield Check("bus", "failed", seen, f"{wrong}, and secure boot is on", fix, why)
    else:
        fix = f"{root}modprobe nvidia\n{root}dmesg | grep -i -e nvrm -e nvidia | tail  # shows why"
        yield Check("bus", "warning", seen, wrong, fix, "Without a driver, a card cannot be given to a task.")


def _match(found: NvidiaCheckup, sample: GpuSample, system: System) -> Iterator[Check]:
    """Whether kernel module and library are of one driver."""
    if sample.mismatch:
        root = remedies.sudo(system)
        loaded = f" {found.module}" if found.module else ""
        wrong = f"the loaded kernel module{loaded} is not of the installed driver"
        fix = f"{remedies.reboot(system)}\n# Or, if nothing uses a GPU:\n"
        fix += f"# {root}rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && {root}modprobe nvidia"
        why = "The driver was updated while the old module was loaded. Nothing can use the GPUs until it is replaced."
        seen = "kernel module and library differ"
        yield Check("driver-match", "failed", seen, wrong, fix, why, words=sample.error or "")
    elif found.module:
        yield ok("driver-match", f"kernel module {found.module}")


def _persistence(found: NvidiaCheckup, sample: GpuSample, system: System) -> Iterator[Check]:
    off = [gpu for gpu in sample.gpus if found.persistence.get(gpu.uuid) is False]
    if not found.persistence:
        return
    if not off:
        yield ok("persistence", "on")
        return
    root = remedies.sudo(system)
    fix = f"{root}nvidia-smi -pm 1\n# For good: {root}systemctl enable --now nvidia-persistenced"
    why = "The driver unloads when nobody uses a GPU, so the next start of a task takes seconds."
    wrong = f"persistence mode is off for {_named(off)}"
    yield Check("persistence", "warning", f"off for {_named(off)}", wrong, fix, why)


def _ecc(found: NvidiaCheckup, sample: GpuSample, system: System) -> Iterator[Check]:
    bad = [gpu for gpu in sample.gpus if gpu.ecc_uncorrected]
    if bad:
        root = remedies.sudo(system)
        count = sum(gpu.ecc_uncorrected or 0 for gpu in bad)
        wrong = f"{count} uncorrected ECC error{'s' if count > 1 else ''} on {_named(bad)}"
        fix = "\n".join(f"{root}nvidia-smi -r -i {gpu.index}  # nothing may use it" for gpu in bad)
        why = "Results of tasks on it cannot be trusted. If it comes back after a reset, the card has to be replaced."
        yield Check("ecc", "failed", wrong, wrong, fix, why)
        return
    known = [gpu for gpu in sample.gpus if gpu.ecc_uncorrected is not None]
    off = [gpu for gpu in sample.gpus if found.ecc.get(gpu.uuid) is False]
    past = sum(found.ecc_total.values())
    words = "no uncorrected errors" if known else "not supported"
    words += f" since the last start, {past} before" if past else ""
    yield ok("ecc", f"off for {_named(off)}" if off else words)


def _faults(node: Node, sample: GpuSample, system: System) -> Iterator[Check]:
    """Xids that call for a repair."""
    faults = node.observation.faults
    root = remedies.sudo(system)
    if faults is None:
        fix = f"{root}sysctl -w kernel.dmesg_restrict=0\n"
        fix += f"echo 'kernel.dmesg_restrict=0' | {root}tee /etc/sysctl.d/99-agentless.conf"
        why = "Errors of GPUs are in the kernel log; agentless keeps faulty GPUs out if it can read it."
        yield Check("xids", "warning", "kernel log not readable", "the login may not read the kernel log", fix, why)
        return
    by_bus = {gpu.pci_bus_id: gpu for gpu in sample.gpus}
    bad = {fault.name: fault for fault in faults if fault.meaning}
    if not bad:
        yield ok("xids", f"{counted(len(faults), 'harmless Xid')} since boot" if faults else "none since boot")
        return
    last = list(bad.values())[-1]
    gpu = by_bus.get(last.pci_bus_id)
    place = f"GPU {gpu.index}" if gpu else last.pci_bus_id
    wrong = f"{last.name} on {place}: {last.meaning}"
    fix = f"{root}nvidia-smi -r -i {gpu.index}  # nothing may use it\n" if gpu else ""
    fix += f"# If it comes again: {root}reboot, then check power, cooling and slot of the card"
    why = "The driver reported a fault after which the GPU has to be reset or the card checked."
    yield Check("xids", "failed", wrong, wrong, fix, why)


def _heat(found: NvidiaCheckup, sample: GpuSample) -> Iterator[Check]:
    slowed = [gpu for gpu in sample.gpus if gpu.uuid in found.slowed]
    hot = [gpu for gpu in sample.gpus if (gpu.temperature_c or 0) >= _HOT]
    temperatures = [gpu.temperature_c for gpu in sample.gpus if gpu.temperature_c is not None]
    seen = f"at most {max(temperatures)} °C" if temperatures else "not reported"
    fix = (
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE  # shows them\n# Check fans, filters and the air flow of the machine."
    )
    why = "A card that is too hot slows down, and ages."
    if slowed:
        wrong = f"{_named(slowed)} slowed down: {found.slowed[slowed[0].uuid]}"
        yield Check("thermals", "warning", seen, wrong, fix, why)
    elif hot:
        yield Check("thermals", "warning", seen, f"{_named(hot)} at {max(temperatures)} °C", fix, why)
    else:
        yield ok("thermals", seen)


def _mig(sample: GpuSample, system: System) -> Iterator[Check]:
    divided = [gpu for gpu in sample.gpus if gpu.mig]
    if not divided:
        if any(gpu.mig is False for gpu in sample.gpus):
            yield ok("mig", "off")
        return
    profiles = {gpu.uuid: Counter(each.profile for each in sample.gpus if each.parent == gpu.uuid) for gpu in divided}
    words = "; ".join(f"GPU {gpu.index}: {_profiles(profiles[gpu.uuid])}" for gpu in divided)
    if not (empty := [gpu for gpu in divided if not profiles[gpu.uuid]]):
        yield ok("mig", words)
        return
    root = remedies.sudo(system)
    fix = "\n".join(
        f"{root}nvidia-smi mig -i {gpu.index} -lgip  # lists profiles\n"
        f"{root}nvidia-smi mig -i {gpu.index} -cgi PROFILE -C\n"
        f"{root}nvidia-smi -i {gpu.index} -mig 0  # or use the whole GPU"
        for gpu in empty
    )
    why = "A GPU in MIG mode is given out in slices only, so nobody gets these."
    yield Check("mig", "warning", words, f"{_named(empty)} in MIG mode without slices", fix, why)


def _profiles(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in found.items()) or "no slices"


def _topology(node: Node, sample: GpuSample) -> Iterator[Check]:
    topology = node.observation.topology
    if len(sample.whole) < 2:
        return
    if topology is None:
        yield skipped("topology", "nvidia-smi topo -m cannot be read")
        return
    fastest = max(topology.links.values(), default=0)
    pairs = [pair for pair, weight in topology.links.items() if weight == fastest]
    total = len(sample.whole) * (len(sample.whole) - 1) // 2
    words = "all pairs alike" if len(pairs) == total else f"{len(pairs)} of {total} pairs are joined best"
    yield ok("topology", words)


def _runtime(node: Node, found: NvidiaCheckup, sample: GpuSample, system: System) -> Iterator[Check]:
    """How GPUs get into containers: the mode of the runtime, and the CDI file that names the GPUs."""
    files = ", ".join(found.cdi_files)
    engine = node.observation.engine
    toolkit = engine.toolkits.get(probe.VENDOR) if engine else None
    if found.mode == "cdi" or (toolkit and toolkit.way == "cdi"):
        given = [gpu for gpu in sample.gpus if not gpu.mig] if found.cdi_names else []
        unknown = [gpu for gpu in given if gpu.uuid not in found.cdi_names]
        missing = unknown or [gpu for gpu in sample.gpus if why_no_container(node.config, engine, gpu)]
        if missing:
            fix = list_devices(system)
            why = "The file was made before these cards were there, or by their numbers instead of their UUIDs."
            yield Check("cdi", "failed", files, f"{files} does not name {_named(missing)}", fix, why)
            return
    if found.cdi_files or found.mode:
        mode = f"mode {found.mode}" if found.mode else ""
        yield ok("cdi", ", ".join(filter(None, (mode, files or "no CDI file"))))


def _named(gpus: Sequence[GpuReading]) -> str:
    return f"GPU {format_indices(gpu.number for gpu in gpus)}"
