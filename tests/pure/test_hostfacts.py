"""The host's facts: the script in every common shell, and its parser on recorded and on broken output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.command import Result, join_sections, split_sections
from agentless.model.nodes.gpu import pci_bus_id
from agentless.model.nodes.node import HostFacts, NumaNode, PciCard
from agentless.remote import host_facts
from tests.engines import RENDERER, VENDORS
from tests.fleet.acme import Acme

RECORDS = sorted((Path(__file__).parent / "data" / "hostfacts").glob("*.json"))
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
SCRIPT = join_sections(host_facts.sections(RENDERER, VENDORS.pci))


def parse(output: bytes) -> HostFacts:
    return host_facts.parse({"host": Result(0, output)})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_output_is_read_as_its_record_says(path: Path) -> None:
    """Each record: cores, memory, and what is near what."""
    record = json.loads(path.read_text())
    found = json.loads(json.dumps(asdict(parse("\n".join(record["output"]).encode()))))
    assert record["expected"] == found


def test_a_section_that_never_came_is_nothing_known() -> None:
    """No answer is no facts, not a machine without memory."""
    assert host_facts.parse({}) == HostFacts()


@settings(deadline=None)
@given(st.binary() | st.text("online cores memory node gpu 0123456789-,:.\n").map(str.encode))
def test_any_bytes_make_facts(output: bytes) -> None:
    """Nothing is raised, and nothing impossible comes out."""
    facts = parse(output)
    assert (facts.cores or 1) > 0
    assert (facts.memory_mib or 1) > 0


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    if not shutil.which(SHELLS[request.param][0]):
        pytest.skip(f"{request.param} is not installed")
    return SHELLS[request.param]


def ask(shell: list[str], script: str = SCRIPT) -> HostFacts:
    done = subprocess.run(shell, input=script.encode(), capture_output=True, timeout=30, check=True)
    return host_facts.parse(split_sections(done.stdout))


def test_this_machine_is_read_as_it_is(shell: list[str]) -> None:
    """From real kernel files: some of them answer a shell's `read` with nothing."""
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    cpus = [text for node in nodes if (text := (node / "cpulist").read_text().strip())]
    totals = [
        int((node / "meminfo").read_text().split()[3]) >> 10 for node in nodes if (node / "cpulist").read_text().strip()
    ]
    facts = ask(shell)
    assert facts.cores == os.sysconf("SC_NPROCESSORS_ONLN")
    assert facts.memory_mib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert [node.cpus for node in facts.numa] == cpus
    assert [node.memory_mib for node in facts.numa] == totals


def test_a_machine_is_read_from_its_sysfs(shell: list[str], tmp_path: Path) -> None:
    """Online CPUs and NUMA nodes; other vendors' cards, audio functions and NVSwitches are no GPUs of ours."""
    for address, vendor, kind, numa in (
        ("0000:3b:00.0", "0x10de", "0x030200", "0"),
        ("0000:af:00.0", "0x10de", "0x030000", "1"),
        ("0000:af:00.1", "0x10de", "0x040300", "1"),
        ("0000:b0:00.0", "0x1002", "0x030000", "1"),
        ("0000:c4:00.0", "0x10de", "0x068000", "0"),
        ("0000:d8:00.0", "0xacac", "0x120000", "1"),
    ):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("class", kind), ("numa_node", numa)):
            (device / name).write_text(f"{value}\n")
    for number, cpus in ((0, "0-3"), (1, "4-7")):
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus}\n")
        if number == 0:
            (node / "meminfo").write_text("Node 0 MemTotal:  8388608 kB\nNode 0 MemFree:  4194304 kB\n")
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir()
    online.write_text("0-6\n")
    found = ask(shell, SCRIPT.replace("/sys/", f"{tmp_path}/sys/"))
    near = (NumaNode(0, "0-3", ("0000:3b:00.0",), 8192), NumaNode(1, "4-7", ("0000:af:00.0", "0000:b0:00.0")))
    assert (found.cores, found.numa) == (7, near)
    script = join_sections(host_facts.sections(RENDERER, (*VENDORS.pci, *Acme.pci)))
    script = script.replace("/sys/", f"{tmp_path}/sys/")
    both = (near[0], replace(near[1], gpus=("0000:af:00.0", "0000:b0:00.0", "0000:d8:00.0")))
    assert ask(shell, script).numa == both


def test_cards_are_named_with_their_drivers(shell: list[str], tmp_path: Path) -> None:
    """Those that only show pictures are none, and so are audio functions."""
    for address, vendor, kind, driver in (
        ("0000:3b:00.0", "0x10de", "0x030200", "nvidia"),
        ("0000:3b:00.1", "0x10de", "0x040300", "snd_hda_intel"),
        ("0000:af:00.0", "0x10de", "0x030000", None),
        ("0000:b0:00.0", "0x1002", "0x030000", None),
        ("0000:c0:00.0", "0x1002", "0x120000", "amdgpu"),
        ("0000:d0:00.0", "0x1a03", "0x030000", "ast"),
    ):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("class", kind)):
            (device / name).write_text(f"{value}\n")
        if driver:
            drivers = tmp_path / "sys/bus/pci/drivers" / driver
            drivers.mkdir(parents=True)
            (device / "driver").symlink_to(drivers)
    os_release = tmp_path / "os-release"
    os_release.write_text('NAME="Linux Mint"\nID_LIKE="ubuntu debian"\nVERSION_ID="21.3"\nID=linuxmint\n')
    found = ask(shell, SCRIPT.replace("/sys/", f"{tmp_path}/sys/").replace("/etc/os-release", str(os_release)))
    assert found.cards == (
        PciCard("0000:3b:00.0", "0x10de", "nvidia"),
        PciCard("0000:af:00.0", "0x10de"),
        PciCard("0000:c0:00.0", "0x1002", "amdgpu"),
    )
    assert found.system == ("linuxmint", "ubuntu", "debian")


def test_a_machine_without_these_files_is_asked_in_vain(shell: list[str], tmp_path: Path) -> None:
    """A stripped container: what is not there is None, and the script ends well."""
    facts = ask(shell, SCRIPT.replace("/sys/", f"{tmp_path}/").replace("/proc/", f"{tmp_path}/"))
    assert (facts.memory_mib, facts.numa) == (None, ())
    assert facts.cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("processes", "runs"),
    [
        ({"1": ("systemd", "1"), "7": ("slurmd", "7")}, True),
        ({"1": ("systemd", "1"), "7": ("slurmd", "7 1")}, False),  # in a container
        ({"1": ("systemd", "1"), "7": ("slurmdbd", "7"), "8": ("slurmstepd", "8")}, False),
        ({"7": ("sh", "7")}, None),  # hidepid: only our own
    ],
)
def test_slurmd_is_seen_if_it_is_the_machines_own(
    shell: list[str], tmp_path: Path, processes: dict[str, tuple[str, str]], runs: bool | None
) -> None:
    for pid, (name, pids) in {"self": ("sh", "9"), **processes}.items():
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "comm").write_text(f"{name}\n")
        (tmp_path / "proc" / pid / "status").write_text(f"Name:\t{name}\nNSpid:\t{pids}\n")
    script = SCRIPT.replace("/sys/", f"{tmp_path}/").replace("/proc/", f"{tmp_path}/proc/")
    assert ask(shell, script).slurmd is runs


def test_where_processes_are_hidden_the_unit_of_slurmd_shows_it(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "fs/cgroup/system.slice/slurmd.service").mkdir(parents=True)
    script = SCRIPT.replace("/sys/", f"{tmp_path}/").replace("/proc/", f"{tmp_path}/proc/")
    assert ask(shell, script).slurmd is True


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("[N/A]", None),
        ("3b:00.0", None),
        ("0000:3b:00.0 ", None),
        ("0000:3b:00.8", None),
    ],
)
def test_a_pci_address_is_spelled_in_one_way(text: str, address: str | None) -> None:
    """nvidia-smi's spelling and the kernel's compare equal."""
    assert pci_bus_id(text) == address


@pytest.mark.parametrize("line", ["online 0-999998", "cores 999999999999", "cores 8193", "memory 999999999999"])
def test_more_than_a_machine_can_have_is_not_known(line: str) -> None:
    """A node must not draw all tasks to itself by a word."""
    found = parse(f"{line}\n".encode())
    assert (found.cores, found.memory_mib) == (None, None)
