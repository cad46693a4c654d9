"""How busy a machine is: the script in every common shell, its parser, and what two readings tell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.command import Result, join_sections, split_sections
from agentless.model.nodes.host_load import Disk, HostLoad
from agentless.remote import host_load
from agentless.remote.host_load import HostReading, load_of
from tests.engines import RENDERER
from tests.pure.shells import SHELLS

ROOT = "/var/lib/docker"
RECORDED = """\
up 25542.70 12529.89
cpu  1701565 594523 1488293 1252989 12785 0 15685 3477 0 0
load 10.01 14.30 9.46 4/212 17667
total 24684096
available 23882152
temperature 54500
net eth0 2750125988 5193040
net ens6f1np1 17 18
disk 4096 64504416 18915705
"""


def parse(text: str) -> HostReading:
    found = host_load.parse({"load": Result(0, text.encode())})
    assert found
    return found


def told(now: HostReading, before: HostReading | None, **more: object) -> HostLoad:
    return load_of(now, before, **{"root": ROOT, "cores": 4, "last": None, **more})


READ = parse(RECORDED)
LATER = replace(READ, up=25552.70, ticks=READ.ticks + 4000, busy=READ.busy + 1230)


# ---------------------------------------------------------------------- the parser


def test_an_answer_is_read() -> None:
    assert (
        HostReading(
            up=25542.7,
            ticks=5069317,
            busy=3803543,
            load=(10.01, 14.3, 9.46),
            memory_mib=24105,
            available_mib=23322,
            temperature_c=54,
            net={"eth0": (2750125988, 5193040), "ens6f1np1": (17, 18)},
            disk=(4096 * (64504416 - 18915705), 4096 * 64504416),
        )
        == READ
    )


@pytest.mark.parametrize("line", RECORDED.splitlines(), ids=lambda line: " ".join(line.split()[:2]))
def test_what_is_missing_is_not_known_and_hides_nothing_else(line: str) -> None:
    rest = parse(RECORDED.replace(f"{line}\n", ""))
    key = line.split(maxsplit=1)[0]
    named = {"cpu": {"ticks", "busy"}, "total": {"memory_mib"}, "available": {"available_mib"}}
    lost = {**named, "temperature": {"temperature_c"}}.get(key, {key})
    different = {name for name in HostReading.__slots__ if getattr(rest, name) != getattr(READ, name)}
    assert different == lost
    assert all(getattr(rest, name) is None for name in lost - {"net"})


def test_no_section_is_no_reading() -> None:
    """Most samples have none: what was known stays."""
    assert host_load.parse({"nvidia": Result(0, b"")}) is None


@pytest.mark.parametrize(
    "line",
    [
        "temperature 150001", "temperature -4000", "disk 4096 10 11", "disk 4096 0 0", "disk 4096 99999999999999999 0",
        "total 999999999999", "load 1 2 3", "load 9999999.00 1.00 1.00", "cpu 1 2 3", "cpu 1 2 3 x 5", "up 12",
        "net eth0 1", "net eth0 -1 2", f"net {'x' * 65} 1 2", f"net eth0 {'9' * 21} 2",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_not_known(line: str) -> None:
    assert parse(f"{line}\n") == HostReading()


def test_an_answer_without_end_is_not_read() -> None:
    assert parse("".join(f"net v{n} 1 2\n" for n in range(10_000))) == HostReading()


@settings(deadline=None)
@given(st.binary() | st.text("up cpu load total available net disk temperature 0123456789-.\n").map(str.encode))
def test_any_bytes_make_a_reading(output: bytes) -> None:
    found = host_load.parse({"load": Result(0, output)})
    assert found
    load = told(found, found)
    assert (load.cores_busy, load.network_in_bytes_per_second) == (None, None)


# ---------------------------------------------------------------------- two readings


def test_two_readings_make_rates() -> None:
    now = replace(LATER, net={"eth0": (2750125988 + 1000, 5193040 + 20), "ens6f1np1": (17, 18)})
    load = told(now, READ)
    assert (load.cores_busy, load.network_in_bytes_per_second, load.network_out_bytes_per_second) == (1.23, 100.0, 2.0)
    assert (load.received_bytes, load.sent_bytes) == (2750125988 + 1017, 5193040 + 38)


def test_one_reading_makes_none() -> None:
    """And 0 would say that the machine is idle."""
    load = told(READ, None)
    assert (load.cores_busy, load.network_in_bytes_per_second, load.network_out_bytes_per_second) == (None, None, None)
    assert (load.load, load.memory_used_mib, load.temperature_c) == ((10.01, 14.3, 9.46), 783, 54)


@pytest.mark.parametrize(
    "now",
    [
        replace(LATER, up=12.0),
        replace(LATER, up=READ.up),
        replace(LATER, up=None),
        replace(LATER, busy=READ.busy - 1, net={}),
        replace(LATER, ticks=READ.ticks, net={"eth0": (0, 0), "ens6f1np1": (17, 18)}),
        replace(LATER, ticks=None, net={**READ.net, "eth1": (5, 5)}),
        replace(LATER, busy=None, net={**READ.net, "eth0": (10**18, 10**18)}),
    ],
    ids=["reboot", "same moment", "no time", "back", "reset", "another card", "impossible"],
)
def test_a_counter_that_does_not_count_makes_no_rate(now: HostReading) -> None:
    load = told(now, READ)
    assert (load.cores_busy, load.network_in_bytes_per_second) == (None, None)


def test_without_its_cores_nobody_knows_how_many_are_busy() -> None:
    assert told(LATER, READ, cores=None).cores_busy is None


def test_the_disk_is_asked_for_less_often_and_stays_known() -> None:
    known = Disk(ROOT, 178080, 251970)
    last = told(READ, None)
    assert last.disk == known
    assert told(replace(LATER, disk=None), READ, last=last).disk == known


def test_the_disk_of_another_folder_is_not_that_of_the_engine() -> None:
    last = told(READ, None)
    assert told(replace(LATER, disk=None), READ, last=last, root="/data/docker").disk is None


def test_more_available_than_there_is_is_nothing_known() -> None:
    load = told(replace(READ, available_mib=30000), None)
    assert (load.memory_used_mib, load.memory_available_mib) == (None, None)


# ---------------------------------------------------------------------- the script


@pytest.fixture(params=SHELLS, ids=lambda argv: argv[0])
def shell(request: pytest.FixtureRequest) -> list[str]:
    if not shutil.which(request.param[0]):
        pytest.skip(f"{request.param[0]} is not installed")
    return request.param


def ask(shell: list[str], under: Path | None = None, root: str = "/", turn: str = "") -> HostReading:
    script = join_sections([host_load.section(RENDERER, root)])
    if under:
        script = script.replace("/sys/class", f"{under}/sys/class").replace("/proc/", f"{under}/proc/")
    done = subprocess.run(shell, input=f"{turn}\n{script}".encode(), capture_output=True, timeout=30, check=True)
    found = host_load.parse(split_sections(done.stdout))
    assert found
    return found


def test_this_machine_is_read_as_it_is(shell: list[str]) -> None:
    """From real kernel files: some of them answer a shell's `read` with nothing."""
    found, size = ask(shell), os.statvfs("/")
    assert found.memory_mib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert found.disk is not None
    assert found.disk[1] == size.f_frsize * size.f_blocks
    assert None not in (found.up, found.ticks, found.busy, found.load, found.available_mib)
    assert sum(map(int, Path("/proc/stat").read_text().split()[1:9])) >= (found.ticks or 0)


def test_a_machine_without_these_files_is_asked_in_vain(shell: list[str], tmp_path: Path) -> None:
    """What is not there is unknown, and the script ends well."""
    assert ask(shell, tmp_path, root=str(tmp_path / "none")) == HostReading()


def test_a_disk_is_asked_for_once_in_a_while(shell: list[str]) -> None:
    asked = [bool(ask(shell, turn=f"turn={turn}").disk) for turn in (0, 1, 5, 10, 15)]
    assert asked == [True, False, False, False, True]


def test_a_folder_may_be_called_anything(shell: list[str], tmp_path: Path) -> None:
    odd = tmp_path / "-a 'b' $(exit 9)"
    odd.mkdir()
    assert ask(shell, root=str(odd)).disk


@pytest.mark.slow
def test_a_disk_that_hangs_holds_up_one_reading_only(tmp_path: Path) -> None:
    """No signal ends what hangs in the kernel, and it keeps open what it has."""
    stub = tmp_path / "stat"
    stub.write_text(f"#!/bin/sh\necho >>{tmp_path}/asked\nsetsid sleep 60 &\necho $! >{tmp_path}/pid\nsleep 60\n")
    stub.chmod(0o755)
    one = join_sections([host_load.section(RENDERER, "/")])
    script = f"PATH={tmp_path}:$PATH\n{one}\n{one}"
    try:
        done = subprocess.run(["dash"], input=script.encode(), capture_output=True, timeout=30, check=True)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    found = host_load.parse(split_sections(done.stdout))
    assert found
    assert (found.disk, found.load is None) == (None, False)
    assert (tmp_path / "asked").read_text() == "\n"


def write(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    return folder


def test_the_temperature_is_that_of_the_hottest_cpu(shell: list[str], tmp_path: Path) -> None:
    """Not of a disk, and not of a sensor that nothing is connected to."""
    hwmon = tmp_path / "sys/class/hwmon"
    write(hwmon / "hwmon0", name="nvme", temp1_input=71000)
    write(hwmon / "hwmon1", name="coretemp", temp1_input=48000, temp2_input=53000, temp3_input=255000)
    write(hwmon / "hwmon2", name="coretemp", temp1_input=-20000, temp2_input="", temp7_input=51000)
    write(tmp_path / "sys/class/thermal/thermal_zone0", type="acpitz", temp=66000)
    assert ask(shell, tmp_path).temperature_c == 53


def test_without_a_sensor_of_a_cpu_it_is_that_of_the_board(shell: list[str], tmp_path: Path) -> None:
    write(tmp_path / "sys/class/hwmon/hwmon0", name="nvme", temp1_input=71000)
    zones = tmp_path / "sys/class/thermal"
    for number, (kind, temp) in enumerate((("acpitz", 41000), ("x86_pkg_temp", 44000), ("iwlwifi_1", 59000))):
        write(zones / f"thermal_zone{number}", type=kind, temp=temp)
    assert ask(shell, tmp_path).temperature_c == 44


def interface(under: Path, name: str, *, device: bool = False, virtual: bool = False) -> None:
    net = under / "sys/class/net" / name
    write(net / "statistics", rx_bytes=10 + len(name), tx_bytes=20)
    if device:
        write(net / "device", **({"physfn": ""} if virtual else {}))


def test_what_counts_is_physical(shell: list[str], tmp_path: Path) -> None:
    """A container's interface, a bridge and a virtual function carry bytes that a card has counted already."""
    interface(tmp_path, "eth0", device=True)
    interface(tmp_path, "ens1f0v3", device=True, virtual=True)
    for name in ("lo", "docker0", "veth12ab", "bond0"):
        interface(tmp_path, name)
    assert ask(shell, tmp_path).net == {"eth0": (14, 20)}


def test_a_node_without_a_card_has_its_default_route(shell: list[str], tmp_path: Path) -> None:
    """One that is a container itself."""
    for name in ("lo", "eth7", "docker0"):
        interface(tmp_path, name)
    route = "Iface\tDestination\tGateway\ndocker0\t000011AC\t00000000\neth7\t00000000\t010011AC"
    write(tmp_path / "proc/net", route=route)
    assert ask(shell, tmp_path).net == {"eth7": (14, 20)}
