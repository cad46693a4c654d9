"""Cards on the PCI bus that no driver serves: they are there, and nobody can use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import HostFacts, NodeConfig, PciCard
from agentless.model.units import counted


class _Maker(NamedTuple):
    """A maker of cards. `classes` are the PCI classes of those that compute.

    `others` are drivers that show pictures only. `fixes` say for each system how to get the driver, or `otherwise`.
    """

    title: str
    classes: tuple[str, ...]
    others: frozenset[str]
    fixes: Mapping[str, str]
    otherwise: str


_MAKERS = {
    "0x10de": _Maker(
        "NVIDIA",
        ("0x03",),
        frozenset({"nouveau", "nova_core"}),
        {
            "ubuntu": "install it with: sudo ubuntu-drivers install",
            "debian": "install it with: sudo apt install nvidia-driver",
            "fedora": "install it with: sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda",
            "arch": "install it with: sudo pacman -S nvidia nvidia-utils",
        },
        "install it from https://www.nvidia.com/drivers",
    ),
    # Those that only show pictures have the class 0x0300.
    "0x1002": _Maker("AMD", ("0x0380", "0x12"), frozenset(), {}, "load it with: sudo modprobe amdgpu"),
}
"""By PCI id, in the order in which their GPUs have numbers."""
_GIVEN_AWAY = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
"""Drivers that hold a card for a virtual machine."""
BY_KFD = "amd"
SHIFTED = (
    "its number may be another one, and the inventory excludes GPUs by number (exclude_gpus): {}; repair that card, or "
    "change exclude_gpus"
)
"""Why nobody gets a GPU where others before it are missing: AMD's are counted as the compute driver lists them."""
CARDS = tuple(f"{maker}:{kind}" for maker, about in _MAKERS.items() for kind in about.classes)
"""How /sys describes such cards: the maker, a colon, and how the class begins."""


def without_driver(host: HostFacts | None, sample: GpuSample | None) -> str:
    """Which cards of a machine have no driver that works, and how to install one; empty if all have.

    What the driver itself complains of is in the sample, and is not said twice.
    """
    if host is None or sample is None or sample.error is not None:
        return ""
    if not sample.gpus and not sample.lister and (words := _out_of_reach(host)):
        return words
    served = {gpu.pci_bus_id for gpu in sample.gpus}
    found: Counter[tuple[str, str]] = Counter()
    for card in host.cards:
        maker = _MAKERS.get(card.maker)
        if maker is None or card.bus in served or card.driver in _GIVEN_AWAY:
            continue
        fix = next((maker.fixes[name] for name in host.system if name in maker.fixes), maker.otherwise)
        if card.driver is None:
            words = f"no driver: {fix}"
        elif card.driver in maker.others:
            words = f"only the driver {card.driver}: {fix}"
        elif not maker.fixes or sample.gpus:
            continue
        elif sample.lister:
            words = "its driver lists no GPU: check dmesg on the node, and reboot it"
        else:
            words = f"its driver is not complete: {fix}"
        found[f"{maker.title} card", words] += 1
    return "; ".join(f"{counted(number, noun)} on the PCI bus, but {words}" for (noun, words), number in found.items())


def numbered(config: NodeConfig, seen: Observation) -> tuple[GpuReading, ...]:
    """The GPUs of a node. Where cards of a maker are missing, the GPUs of the next one have wrong numbers: `hidden`.

    A card without a driver may never have been listed. It is missed only where the inventory counts on numbers.
    """
    gpus, host = seen.sample.gpus if seen.sample else (), seen.host
    if config.exclude_gpus and any(gpu.vendor == BY_KFD and gpu.barred for gpu in gpus):
        why = SHIFTED.format("the compute driver lacks an AMD card")
        gpus = tuple(replace(gpu, hidden=why) if gpu.vendor == BY_KFD and not gpu.barred else gpu for gpu in gpus)
    count = Counter(gpu.vendor for gpu in gpus if gpu.parent is None)
    if host is None or not host.cards or not count:
        return gpus
    why, hidden = "", dict[str, str]()
    for key, maker in _MAKERS.items():
        vendor = maker.title.lower()
        if why:
            hidden[vendor] = why
        there = sum(card.maker == key and _is_missed(card, maker, config) for card in host.cards)
        if there > count[vendor]:
            title = f"{maker.title} card"
            what = f"{counted(there, title)} on the PCI bus, but {count[vendor] or 'none'} listed"
            why = why or f"its number is not known: {what}; repair or remove what is not listed"
    return tuple(replace(gpu, hidden=gpu.hidden or hidden[gpu.vendor]) if gpu.vendor in hidden else gpu for gpu in gpus)


def _is_missed(card: PciCard, maker: _Maker, config: NodeConfig) -> bool:
    return card.driver not in maker.others | _GIVEN_AWAY and bool(card.driver or config.exclude_gpus)


def _out_of_reach(host: HostFacts) -> str:
    """A GPU that is there and that no tool tells of. Empty if there is none."""
    if host.jetson:
        return f"{host.jetson} without nvidia-smi: its GPU can be used from JetPack 6 on"
    if host.wsl and host.wsl.has_amd and not host.wsl.has_nvidia:
        return "AMD GPU in WSL2, which has no /dev/kfd and lists no processes: run Linux on the machine to use it"
    return ""
