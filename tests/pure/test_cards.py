"""Cards on the PCI bus without a driver: counted, named, and with the command that installs one."""

from __future__ import annotations

import pytest

from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import HostFacts, PciCard, WslFacts
from agentless.rules.nodes.cards import without_driver
from tests.pure.build import cluster, reading, seen

NVIDIA, AMD = "0x10de", "0x1002"
ABSENT = GpuSample()
ON_DEBIAN = "install it with: sudo apt install nvidia-driver"


def card(slot: int, driver: str | None = None, maker: str = NVIDIA) -> PciCard:
    return PciCard(f"0000:{slot:02x}:00.0", maker, driver)


def host(*cards: PciCard, system: tuple[str, ...] = ("debian",)) -> HostFacts:
    return HostFacts(cards=cards, system=system)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (
            host(card(1), card(2)),
            f"2 NVIDIA cards on the PCI bus, but no driver: {ON_DEBIAN}",
        ),
        (
            host(card(1), system=("ubuntu", "debian")),
            "1 NVIDIA card on the PCI bus, but no driver: install it with: sudo ubuntu-drivers install",
        ),
        (
            host(card(1), system=("linuxmint", "ubuntu", "debian")),
            "1 NVIDIA card on the PCI bus, but no driver: install it with: sudo ubuntu-drivers install",
        ),
        (
            host(card(1), system=("plan9",)),
            "1 NVIDIA card on the PCI bus, but no driver: install it from https://www.nvidia.com/drivers",
        ),
        (
            host(card(1, "nouveau")),
            f"1 NVIDIA card on the PCI bus, but only the driver nouveau: {ON_DEBIAN}",
        ),
        (
            host(card(1, "nvidia")),
            f"1 NVIDIA card on the PCI bus, but its driver is not complete: {ON_DEBIAN}",
        ),
        (
            host(card(1, maker=AMD)),
            "1 AMD card on the PCI bus, but no driver: load it with: sudo modprobe amdgpu",
        ),
    ],
    ids=["two", "ubuntu", "like ubuntu", "unknown system", "nouveau", "no nvidia-smi", "AMD"],
)
def test_a_card_without_a_driver_is_there_without_a_driver(there: HostFacts, words: str) -> None:
    assert without_driver(there, ABSENT) == words


def test_a_driver_that_is_asked_and_lists_no_gpu_is_not_installed_once_more() -> None:
    asked = GpuSample(lister="nvidia-smi -L")
    words = "1 NVIDIA card on the PCI bus, but its driver lists no GPU: check dmesg on the node, and reboot it"
    assert without_driver(host(card(1, "nvidia")), asked) == words


def test_a_card_that_works_is_no_problem_and_one_beside_it_is() -> None:
    works = GpuSample((GpuReading(0, "GPU-0", pci_bus_id="0000:01:00.0"),))
    assert without_driver(host(card(1, "nvidia")), works) == ""
    assert without_driver(host(card(1, "nvidia"), card(2, "nvidia")), works) == ""  # its log says why it has fallen off
    assert without_driver(host(card(1, "nvidia"), card(2)), works).startswith("1 NVIDIA card on the PCI bus")


@pytest.mark.parametrize(
    ("there", "sample"),
    [
        (host(card(1, "vfio-pci")), ABSENT),
        (host(card(1, "amdgpu", AMD)), ABSENT),
        (host(card(1, maker="0x1a03")), ABSENT),
        (host(card(1)), GpuSample(error="the NVIDIA driver is not loaded")),
        (host(), ABSENT),
        (None, ABSENT),
        (host(card(1)), None),
    ],
    ids=["given to a VM", "works", "no such maker", "the driver complains itself", "none", "no facts", "no sample"],
)
def test_nothing_is_made_up(there: HostFacts | None, sample: GpuSample | None) -> None:
    assert without_driver(there, sample) == ""


def test_a_jetson_without_nvidia_smi_and_an_amd_card_in_wsl2_are_out_of_reach() -> None:
    jetson = HostFacts(jetson="NVIDIA Jetson Xavier NX")
    assert without_driver(jetson, ABSENT) == (
        "NVIDIA Jetson Xavier NX without nvidia-smi: its GPU can be used from JetPack 6 on"
    )
    amd = HostFacts(wsl=WslFacts(has_gpu=True, has_amd=True))
    assert without_driver(amd, ABSENT) == (
        "AMD GPU in WSL2, which has no /dev/kfd and lists no processes: run Linux on the machine to use it"
    )
    both = HostFacts(wsl=WslFacts(has_gpu=True, has_amd=True, has_nvidia=True))
    assert without_driver(both, ABSENT) == ""
    assert without_driver(jetson, GpuSample((GpuReading(0, "cb2b4b0a"),), lister="nvidia-smi -L")) == ""
    assert without_driver(HostFacts(wsl=WslFacts(has_gpu=True)), ABSENT) == ""


@pytest.mark.parametrize(
    ("there", "excludes", "states"),
    [
        ([card(1, "nvidia")], True, ["free", "free", "excluded"]),
        ([card(1, "nvidia"), card(2, "nvidia")], False, ["free", "unknown", "unknown"]),
        ([card(1, "nvidia"), card(2)], True, ["free", "unknown", "excluded"]),
        ([card(1, "nvidia"), card(2)], False, ["free", "free", "free"]),
        ([card(1, "nvidia"), card(2, "nouveau"), card(3, "vfio-pci")], True, ["free", "free", "excluded"]),
        ([card(1, "nvidia"), card(2, "amdgpu", AMD), card(3, "amdgpu", AMD)], True, ["free", "free", "excluded"]),
    ],
)
def test_gpus_behind_a_card_that_is_not_listed_have_no_known_number(
    there: list[PciCard], excludes: bool, states: list[str]
) -> None:
    """`exclude_gpus` would mean other GPUs than those that were written down."""
    vendors = ("nvidia", "amd", "amd")
    gpus = tuple(reading("node1", index, vendor=vendor) for index, vendor in enumerate(vendors))
    found = seen(sample=GpuSample(gpus), host=host(*there))
    on = cluster(found, exclude_gpus=(2,) if excludes else ()).nodes["node1"].gpus
    assert [gpu.state for gpu in on] == states
    if "unknown" in states:
        assert on[1].reason == (
            "its number is not known: 2 NVIDIA cards on the PCI bus, but 1 listed; repair or remove what is not listed"
        )


def test_gpus_behind_a_vendor_that_lists_none_any_more_have_no_known_number() -> None:
    gpus = tuple(reading("node1", index, vendor="amd") for index in range(2))
    found = seen(sample=GpuSample(gpus), host=host(card(1, "nvidia")))
    on = cluster(found, exclude_gpus=(2,)).nodes["node1"].gpus
    assert [(gpu.state, "but none listed" in gpu.reason) for gpu in on] == [("unknown", True)] * 2
