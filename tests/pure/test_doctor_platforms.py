"""What doctor says of WSL2 and of Jetsons."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentless.model.command import Result
from agentless.model.nodes.check import Check, VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import HostFacts, WslFacts
from agentless.remote import host_facts
from agentless.rules.nodes.checks.examine import examine
from tests.engines import RENDERER, VENDORS
from tests.pure.build import cluster, reading, seen
from tests.pure.test_doctor import MACHINE, WELL, wrong

GOOD = WslFacts(has_gpu=True, has_nvidia=True)
CARD = replace(reading("node1", 0), unlisted="wsl")
NO_SYSTEMD = System("ubuntu", ("debian",), "Ubuntu 24.04", "apt", has_systemd=False)


def checks(
    wsl: WslFacts | None = GOOD,
    *cards: GpuReading,
    system: System | None = None,
    docker: tuple[str, ...] = ("docker",),
    assume: frozenset[str] = frozenset({"wsl"}),
    jetson: str = "",
) -> tuple[Check, ...]:
    there = seen(
        sample=GpuSample(cards, lister="nvidia-smi -L" if cards else ""), host=HostFacts(wsl=wsl, jetson=jetson)
    )
    node = cluster(there, docker=docker, assume_free=assume).nodes["node1"]
    known = replace(WELL, machine=replace(MACHINE, system=system)) if system else WELL
    return examine(node, known, VendorChecks())


def test_wsl2_with_the_driver_of_windows_is_well() -> None:
    found = {check.name: check for check in checks(GOOD, CARD)}
    assert not wrong(*found.values())
    assert found["wsl"].seen == "WSL2, with the driver of Windows"
    assert found["gpu-processes"].seen == (
        "WSL2 does not list what uses it, also in Windows; assumed to be free, as the inventory says"
    )


def test_any_other_machine_has_none_of_these_checks() -> None:
    names = {check.name for check in checks(None, reading("node1", 0))}
    assert not names & {"wsl", "wsl-systemd", "wsl-engine", "gpu-processes"}


@pytest.mark.parametrize(
    ("wsl", "name", "words"),
    [
        (WslFacts(), "wsl", "Windows shares no GPU with WSL2"),
        (WslFacts(has_gpu=True), "wsl", "there is no /usr/lib/wsl/lib/nvidia-smi"),
        (GOOD, "wsl", "nvidia-smi of Windows lists no GPU; on the node, run: /usr/lib/wsl/lib/nvidia-smi"),
        (WslFacts(has_gpu=True, has_amd=True), "nvidia", "AMD GPU in WSL2, which has no /dev/kfd and lists no process"),
    ],
)
def test_each_way_to_have_no_gpu_in_wsl2_has_its_words(wsl: WslFacts, name: str, words: str) -> None:
    assert wrong(*checks(wsl))[name].detail.startswith(words)


def test_a_linux_driver_inside_wsl2_is_to_go() -> None:
    bad = replace(GOOD, others=("/usr/bin/nvidia-smi",))
    found = wrong(*checks(bad, CARD, system=NO_SYSTEMD))
    assert found["wsl"].verdict == "failed"
    assert found["wsl"].detail == (
        "a Linux driver is installed inside WSL2 (/usr/bin/nvidia-smi); on the node, run: "
        "sudo apt-get purge 'nvidia-*' 'libnvidia-*'"
    )
    assert found["wsl-systemd"].fix.splitlines() == [
        "printf '[boot]\\nsystemd=true\\n' | sudo tee -a /etc/wsl.conf",
        "# Then, in Windows: wsl --shutdown",
    ]


def test_nobody_has_said_what_to_assume() -> None:
    found = wrong(*checks(GOOD, CARD, assume=frozenset()))["gpu-processes"]
    assert found.verdict == "warning"
    assert found.detail.endswith("; if only tasks use it, set 'wsl: {assume: free}' for the node in the inventory")
    assert found.fix == "# In the inventory: node1: {…, wsl: {assume: free}}"


def test_podman_in_wsl2_is_a_warning() -> None:
    assert "wsl-engine" in wrong(*checks(GOOD, CARD, docker=("podman",)))


def test_a_jetson_is_told_what_its_driver_does_not_list() -> None:
    orin = replace(reading("node1", 0), unlisted="jetson")
    assert wrong(*checks(None, orin, jetson="NVIDIA Jetson Orin"))["gpu-processes"].detail.startswith(
        "the driver of a Jetson does not list what uses it; if only tasks"
    )
    assert wrong(*checks(None, jetson="NVIDIA Jetson Xavier NX"))["nvidia"].detail == (
        "NVIDIA Jetson Xavier NX without nvidia-smi: its GPU can be used from JetPack 6 on"
    )


# ---------------------------------------------------------------------- facts

SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


@pytest.mark.parametrize("shell", SHELLS)
def test_wsl2_and_a_jetson_are_known_by_their_files(shell: str, tmp_path: Path) -> None:
    """The script looks in a folder of ours in place of the machine's."""
    for name, text in {
        "proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
        "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0",
        "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
        "dev/dxg": "",
        "usr/lib/wsl/lib/nvidia-smi": "",
        "usr/lib/wsl/drivers/u0396581.inf_amd64_8f1b/x": "",
        "usr/lib/x86_64-linux-gnu/libcuda.so.1": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/wsl/lib/nvidia-smi")
    (section,) = host_facts.sections(RENDERER, VENDORS.pci)
    script = section.script
    for folder in ("/proc/sys/kernel/osrelease", "/proc/device-tree", "/dev/dxg", "/usr/lib", "/usr/bin"):
        script = script.replace(f" {folder}", f" {tmp_path}{folder}")
    ran = subprocess.run([*SHELLS[shell], "-c", script], capture_output=True, check=True, env=dict(os.environ))
    facts = host_facts.parse({"host": Result(0, ran.stdout)})
    other = f"{tmp_path}/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert facts.jetson == "NVIDIA Jetson AGX Orin Developer Kit"
    assert facts.wsl is not None
    assert replace(facts.wsl, others=()) == WslFacts(has_gpu=True, has_nvidia=True, has_amd=True)
    assert other in facts.wsl.others
    assert ran.stderr == b""


def test_this_machine_is_neither() -> None:
    (section,) = host_facts.sections(RENDERER, VENDORS.pci)
    ran = subprocess.run(["sh", "-c", section.script], capture_output=True, check=True)
    facts = host_facts.parse({"host": Result(0, ran.stdout)})
    assert (facts.wsl, facts.jetson) == (None, "")


def test_an_external_gpu_is_known_by_its_port() -> None:
    facts = host_facts.parse({"host": Result(0, b"removable 0000:3f:00.0\nremovable nonsense\n")})
    assert facts.removable == ("0000:3f:00.0",)


def test_what_a_node_says_of_itself_is_bounded() -> None:
    lines = ["wsl", "wsl other /a b", "wsl other nonsense;rm", "wsl what", "jetson \x1b[31m" + "x" * 200]
    facts = host_facts.parse({"host": Result(0, "\n".join(lines).encode())})
    assert facts.wsl == WslFacts()
    assert len(facts.jetson) == 80
    assert "\x1b" not in facts.jetson
