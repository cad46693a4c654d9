"""AMD's GPUs: what /sys, amd-smi and rocm-smi say of them, whole and broken, and which devices a launch finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.engines.beside import group_names
from agentless.formats.json_answers import first_json
from agentless.gpus.amd import amd_smi, checkup, faults, rocm_smi
from agentless.gpus.amd.card import Card
from agentless.gpus.amd.checkup import AmdCheckup
from agentless.gpus.amd.proof import proof
from agentless.gpus.amd.vendor import Amd
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import Result, join_sections, split_sections
from agentless.model.containers.launch import Launch
from agentless.model.nodes.checkup import SYSTEM
from agentless.model.nodes.device import Device
from agentless.model.nodes.gpu import GpuReading, GpuSample
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.task import Placement
from tests.engines import RENDERER, docker_engine, systemd_engine
from tests.lab.amd import AmdCard, use, write
from tests.pure.build import SIGNER, cluster, reading, seen, spec, task
from tests.pure.shells import SHELLS

DATA = Path(__file__).parent / "data" / "amd"
EXPECTED = json.loads((DATA / "expected.json").read_text())
FILES = [name for name in EXPECTED if name != "source"]
ONE = AmdCard("0000:83:00.0", "79ccd55167a2124a", 128)
PLAIN = AmdCard("0000:43:00.0", None, 129)
SPLIT = AmdCard(
    "0000:0c:00.0",
    "dc91284879207f2b",
    136,
    {"current_compute_partition": "CPX", "current_memory_partition": "NPS1", "device": "0x74a1"},
    parts=(137, 138, 139),
)
shells = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)


def recorded(name: str) -> str:
    return (DATA / name).read_text()


# ------------------------------------------------------------------ tools


@pytest.mark.parametrize("name", FILES)
def test_what_rocm_smi_has_printed_is_read_as_a_person_reads_it(name: str) -> None:
    found = [
        [
            *(bus, c.unique, c.name, c.driver, c.total, c.used, c.busy, c.celsius, c.watts, c.watts_limit),
            *(c.fan, c.mhz, c.memory_mhz, c.numa),
        ]
        for bus, c in rocm_smi.cards(recorded(name)).items()
    ]
    assert found == EXPECTED[name]


def value(number: float, unit: str) -> dict[str, Any]:
    return {"value": number, "unit": unit}


LISTED = [{"gpu": 0, "bdf": "0000:83:00.0", "uuid": "79ff738c-0000-1000-80cc-d55167a2124a", "node_id": 2}]
STATIC = {
    "gpu": 0,
    "asic": {"market_name": "Arcturus GL-XL [Instinct MI100]", "asic_serial": "0x79CCD55167A2124A"},
    "bus": {"bdf": "0000:83:00.0"},
    "driver": {"name": "amdgpu", "version": "6.3.6"},
    "vram": {"type": "HBM", "size": value(32752, "MB")},
    "numa": {"node": 1, "affinity": 1},
}
METRIC = {
    "gpu": 0,
    "usage": {"gfx_activity": value(0, "%"), "umc_activity": value(0, "%"), "mm_activity": "N/A"},
    "power": {"socket_power": value(36, "W")},
    "clock": {"gfx_0": {"clk": value(300, "MHz")}, "mem_0": {"clk": value(1200, "MHz")}},
    "temperature": {"edge": value(53, "C"), "hotspot": value(55, "C"), "mem": value(53, "C")},
    "mem_usage": {"total_vram": value(32752, "MB"), "used_vram": value(6, "MB")},
    "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
}
SIX = (LISTED, [{**STATIC, "limit": {"max_power": value(290, "W"), "socket_power": value(290, "W")}}], [METRIC])
SEVEN = (
    LISTED,
    {"gpu_data": [{**STATIC, "limit": {"ppt0": {"socket_power_limit": value(290, "W")}, "ppt1": "N/A"}}]},
    {"gpu_data": [METRIC]},
)


@pytest.mark.parametrize("shape", [SIX, SEVEN], ids=["ROCm 6", "ROCm 7"])
def test_amd_smi_rocm_smi_and_sys_say_the_same_of_a_card(shape: tuple[Any, ...], tmp_path: Path) -> None:
    by_amd = amd_smi.cards(*map(json.dumps, shape))["0000:83:00.0", 0]
    by_rocm = rocm_smi.cards(recorded("mi100_rocm602.json"))["0000:83:00.0"]
    # rocm-smi says neither what errors there were nor in which place HIP has it.
    assert replace(by_rocm, uncorrected=0, node=2) == by_amd
    (by_sys,) = sample(tmp_path, ONE).gpus
    assert by_sys.power_w == by_amd.watts
    shown = (by_sys.memory_total_mib, by_sys.memory_used_mib, by_sys.temperature_c, by_sys.power_limit_w)
    assert shown == (by_amd.total, by_amd.used, by_amd.celsius, by_amd.watts_limit)
    assert (by_sys.clock_sm_mhz, by_sys.ecc_uncorrected) == (by_amd.mhz, by_amd.uncorrected)


@pytest.mark.parametrize(
    "before",
    ["", "\n", "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n", "[WARN] {not this}\n"],
)
def test_what_is_said_before_the_json_does_not_hide_it(before: str) -> None:
    assert rocm_smi.cards(before + recorded("vega-10-XT.json")) == rocm_smi.cards(recorded("vega-10-XT.json"))


@pytest.mark.parametrize("name", FILES)
def test_json_that_was_cut_off_is_no_card(name: str) -> None:
    text = recorded(name).rstrip()
    assert all(rocm_smi.cards(text[:at]) == {} for at in range(0, len(text), 97))
    assert rocm_smi.cards("") == {}


def test_a_bracket_in_every_line_ends_the_search() -> None:
    text = "[\n" * 100_000
    assert first_json(text) == (None, text)


def test_json_that_has_no_end_is_not_read_again_from_each_line() -> None:
    text = "".join(f"[{'1,' * size}\n" for size in (1 << 20, 1 << 20, 1 << 20)) + "{}\n"
    assert first_json(text) == (None, text)
    assert first_json("[WARN]\n" + text[1 << 22 :])[0] == {}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([{"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]}], []),
        ([{"gpu": 0, "process_list": "No running processes detected"}], []),
        (
            {"gpu_data": [{"gpu": 0, "process_list": [{"process_info": {"name": "python", "pid": 42}}]}]},
            [(("0000:83:00.0", 0), 42, "python", None)],
        ),
        (
            [
                {
                    "gpu": 0,
                    "process_list": [{"process_info": {"pid": 7, "memory_usage": {"vram_mem": value(1 << 30, "B")}}}],
                }
            ],
            [(("0000:83:00.0", 0), 7, None, 1024)],
        ),
        ([{"gpu": 0, "process_list": "N/A"}], None),
        ([{"gpu": 0, "process_list": [{"process_info": {"name": "python"}}]}], None),
        ([], None),
    ],
)
def test_processes_that_amd_smi_does_not_show_whole_are_unknown(answer: Any, expected: Any) -> None:
    found = amd_smi.processes(json.dumps(LISTED), json.dumps(answer))
    assert (None if found is None else [astuple(each) for each in found]) == expected


TREES = st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))


@settings(max_examples=15)
@given(st.text(), TREES)
def test_no_answer_of_a_tool_raises(text: str, tree: Any) -> None:
    no_answer_raises(text, tree)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.text(), TREES)
def test_no_answer_of_a_tool_ever_raises(text: str, tree: Any) -> None:
    no_answer_raises(text, tree)


def no_answer_raises(text: str, tree: Any) -> None:
    """Whatever a tool prints is read, or passed over."""
    for said in (text, json.dumps(tree), json.dumps([{"gpu": 0, "bdf": "0000:83:00.0", "asic": tree, "usage": tree}])):
        amd_smi.cards(said, said, said)
        amd_smi.processes(said, said)
        rocm_smi.cards(said)
        rocm_smi.pids(said)


# ------------------------------------------------------------------ the probe


def asked(root: Path, shell: list[str] = ["sh"], **env: str) -> dict[str, Result]:  # noqa: B006
    script = join_sections(Amd().sections(RENDERER, topology=True)).replace("/sys/", f"{root}/")
    path = f"{root}/bin:{os.environ['PATH']}"
    done = subprocess.run(shell, input=script.encode(), capture_output=True, check=True, env={"PATH": path, **env})
    return split_sections(done.stdout)


def sample(root: Path, *cards: AmdCard) -> GpuSample:
    write(root, cards)
    return Amd().parse(asked(root))


@shells
def test_cards_are_read_in_every_shell(shell: list[str], tmp_path: Path) -> None:
    write(tmp_path, [ONE, PLAIN, SPLIT], {(0, 1): (11, 15), (0, 2): (2, 40)})
    use(tmp_path, os.getpid(), {1: 1 << 30, 2: 0, 4: 5 << 20}, queues=[3])
    sections = asked(tmp_path, shell)
    found = Amd().parse(sections)
    assert found.error is None
    shown = [
        (gpu.number, gpu.uuid.partition("-0000")[0], gpu.kind, gpu.profile, gpu.memory_total_mib) for gpu in found.gpus
    ]
    assert shown == [
        (0, "AMD-79ccd55167a2124a", "gpu", "", 32752),
        (1, "AMD", "gpu", "", 32752),
        (2, "AMD-dc91284879207f2b", "gpu", "", 32752),
        *((f"2/{part}", f"AMD-cpx{part}-dc91284879207f2b", "partition", "cpx/nps1", 8188) for part in range(4)),
    ]
    ids = [gpu.uuid for gpu in found.gpus]
    assert [(ids.index(p.gpu_uuid), p.memory_mib) for p in found.processes or ()] == [(0, 1024), (3, None), (4, 5)]
    topology = Amd().parse_topology(sections)
    assert topology
    assert (topology.links, topology.numa) == ({(0, 1): 8, (0, 2): 3}, {0: 1, 1: 1, 2: 1})
    assert all(gpu.parent == ids[2] for gpu in found.gpus[3:])


def test_the_first_letters_of_the_ids_on_a_node_differ(tmp_path: Path) -> None:
    """Claims between engines hold eight of them."""
    ids = [gpu.uuid for gpu in sample(tmp_path, ONE, PLAIN, replace(PLAIN, bus="0000:43:00.1", render=130), SPLIT).gpus]
    short = [digits for _, digits in group_names(ids)]
    assert len(set(short)) == len(short) == 8


def test_hips_order_is_that_of_the_nodes_and_not_of_their_names(tmp_path: Path) -> None:
    cards = [AmdCard(f"0000:{bus:02x}:00.0", f"{bus:016x}", 127 + bus) for bus in range(1, 13)]
    write(tmp_path, cards)
    buses = [gpu.pci_bus_id for gpu in Amd().parse(asked(tmp_path)).gpus]
    assert buses == [card.bus for card in cards]


def test_a_card_without_a_unique_id_has_one_of_its_machine(tmp_path: Path) -> None:
    (here,) = sample(tmp_path, PLAIN).gpus
    script = join_sections(Amd().sections(RENDERER)).replace("/sys/", f"{tmp_path}/")
    script = script.replace("/etc/machine-id", f"{tmp_path}/other")
    (tmp_path / "other").write_text("another machine\n")
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True)
    (there,) = Amd().parse(split_sections(done.stdout)).gpus
    assert here.uuid.startswith("AMD-00004300-")
    assert there.uuid.startswith("AMD-00004300-")
    assert here.uuid != there.uuid


@shells
def test_a_card_without_a_unique_id_keeps_its_id_under_another_host_name(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("c0ffee\n")
    script = RENDERER.script("amd-machine.sh.j2") + "\nloc=00004300\nwhole /nowhere\necho $id\n"
    ids = []
    for machine, host in (("machine-id", "one"), ("machine-id", "two"), ("none", "one"), ("none", "two")):
        (tmp_path / "name").write_text(f"{host}\n")
        text = script.replace("/etc/machine-id", f"{tmp_path}/{machine}")
        text = text.replace("/proc/sys/kernel/hostname", f"{tmp_path}/name")
        ids.append(subprocess.run([*shell, "-c", text], capture_output=True, check=True).stdout)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_graphics_in_a_processor_are_no_gpu_and_a_card_without_kfd_is_given_to_nobody(tmp_path: Path) -> None:
    small = replace(ONE, bus="0000:05:00.0", render=131, files={"mem_info_vram_total": str(512 << 20)})
    (found,) = sample(tmp_path, small, replace(PLAIN, kfd=False)).gpus
    assert (found.index, "/dev/kfd" in found.barred) == (0, True)


def test_uncorrected_errors_of_all_parts_of_a_card_are_counted(tmp_path: Path) -> None:
    bad = replace(ONE, files={"ras/umc_err_count": "ue: 2\nce: 5", "ras/gfx_err_count": "ue: 1\nce: 0"})
    (found,) = sample(tmp_path, bad).gpus
    assert found.ecc_uncorrected == 3


def test_a_card_that_sleeps_is_not_woken_up(tmp_path: Path) -> None:
    (found,) = sample(tmp_path, replace(ONE, files={"power/runtime_status": "suspended"})).gpus
    assert (found.memory_used_mib, found.utilization_pct, found.temperature_c) == (6, None, None)


def tool(root: Path, name: str, script: str) -> None:
    path = root / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho run >> {root}/ran\n{script}\n")
    path.chmod(0o755)


LESS = replace(ONE, files={"mem_info_vram_total": None, "mem_info_vram_used": None})


@pytest.mark.parametrize("shape", [SIX, SEVEN], ids=["ROCm 6", "ROCm 7"])
def test_amd_smi_is_asked_for_what_sys_lacks(shape: tuple[Any, ...], tmp_path: Path) -> None:
    write(tmp_path, [LESS])
    for name, answer in zip(("list", "static", "metric"), shape, strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    tool(tmp_path, "amd-smi", f'echo "WARNING: User is missing the following required groups"; cat {tmp_path}/$1.json')
    tool(tmp_path, "rocm-smi", "exit 9")
    (found,) = Amd().parse(asked(tmp_path)).gpus
    assert (found.memory_total_mib, found.memory_used_mib, found.name) == (32752, 6, "AMD Instinct MI100")


@pytest.mark.parametrize("before", ["", "echo; echo WARNING: low-power state"])
def test_rocm_smi_is_asked_where_there_is_no_amd_smi(before: str, tmp_path: Path) -> None:
    write(tmp_path, [LESS])
    tool(tmp_path, "rocm-smi", f"{before}\ncat {DATA}/mi100_rocm602.json")
    found = Amd().parse(asked(tmp_path))
    assert [(gpu.memory_total_mib, gpu.memory_used_mib, bool(gpu.barred)) for gpu in found.gpus] == [
        (32752, 6, False),
        *[(32752, 6, True)] * 3,  # rocm-smi knows three more, which /sys/class/drm does not have
    ]


def test_no_tool_is_started_while_sys_says_all(tmp_path: Path) -> None:
    tool(tmp_path, "amd-smi", "cat")
    sample(tmp_path, ONE, SPLIT)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("said", ["", "[", '{"gpu_data": [{"gpu": 0, "usage', "Traceback (most recent call last):"])
def test_a_tool_that_breaks_off_leaves_gpus_unknown_in_words(said: str, tmp_path: Path) -> None:
    write(tmp_path, [LESS])
    shutil.rmtree(tmp_path / "class/kfd/kfd/proc")
    tool(tmp_path, "amd-smi", f"printf '%s' '{said}'")
    found = Amd().parse(asked(tmp_path))
    assert (found.processes, found.gpus[0].memory_total_mib) == (None, None)
    assert found.error == "amd-smi prints no JSON that can be read; run it on the node to see why"


def test_processes_that_rocm_smi_cannot_place_are_on_all_gpus(tmp_path: Path) -> None:
    write(tmp_path, [ONE, PLAIN])
    shutil.rmtree(tmp_path / "class/kfd/kfd/proc")
    pids = {"system": {"PID4711": "python, 1, 1048576, 0, unknown"}}
    (tmp_path / "pids.json").write_text(json.dumps(pids))
    tool(tmp_path, "rocm-smi", f'case "$*" in *pids*) cat {tmp_path}/pids.json ;; esac')
    found = Amd().parse(asked(tmp_path))
    assert {(each.gpu_uuid, each.pid) for each in found.processes or ()} == {(gpu.uuid, 4711) for gpu in found.gpus}


def test_memory_that_cannot_be_read_of_one_process_makes_all_unknown(tmp_path: Path) -> None:
    write(tmp_path, [ONE])
    use(tmp_path, 1, {1: 0})
    (tmp_path / "class/kfd/kfd/proc/1/vram_50001").write_text("")
    assert Amd().parse(asked(tmp_path)).processes is None


@pytest.mark.parametrize("there", [["pasid"], []], ids=["only its pasid", "nothing"])
def test_a_process_of_which_the_kernel_does_not_say_what_it_uses_makes_all_unknown(
    there: list[str], tmp_path: Path
) -> None:
    """As Linux 5.3 to 5.7 and a folder that cannot be read; whatever a tool says."""
    write(tmp_path, [LESS])
    folder = tmp_path / "class/kfd/kfd/proc/4711"
    folder.mkdir(parents=True)
    for name in there:
        (folder / name).write_text("32769")
    shapes = dict(zip(("list", "static", "metric"), SIX, strict=True)) | {"process": idle(LISTED)}
    for name, answer in shapes.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    tool(tmp_path, "amd-smi", f"cat {tmp_path}/$1.json")
    found = Amd().parse(asked(tmp_path))
    assert found.processes is None
    assert "does not say which AMD GPUs each process uses" in (found.error or "")


def idle(listed: list[Any]) -> list[Any]:
    said = [{"process_info": "No running processes detected"}]
    return [{"gpu": each["gpu"], "process_list": said} for each in listed]


@pytest.mark.parametrize(("uid", "known"), [(0, True), (1000, False)])
@pytest.mark.parametrize("program", ["amd-smi", "rocm-smi"])
def test_a_tool_that_shows_no_processes_is_believed_as_root_only(
    program: str, uid: int, known: bool, tmp_path: Path
) -> None:
    write(tmp_path, [ONE])
    shutil.rmtree(tmp_path / "class/kfd/kfd/proc")
    listed, none, cards = json.dumps(LISTED), json.dumps(idle(LISTED)), DATA / "mi100_rocm602.json"
    said = {
        "amd-smi": f"case $1 in process) echo '{none}' ;; list) echo '{listed}' ;; *) echo '[]' ;; esac",
        "rocm-smi": f'case "$*" in *pids*) echo No KFD PIDs currently running ;; *) cat {cards} ;; esac',
    }
    tool(tmp_path, program, said[program])
    tool(tmp_path, "id", f"echo {uid}")
    found = Amd().parse(asked(tmp_path))
    assert (found.processes is not None) is known
    assert ("to root only" in (found.error or "")) is not known


def test_a_machine_without_amdgpu_is_asked_for_nothing(tmp_path: Path) -> None:
    assert Amd().parse(asked(tmp_path)) == GpuSample()


def test_a_simulated_node_has_no_gpu_of_this_machine(tmp_path: Path) -> None:
    write(tmp_path, [ONE])
    assert Amd().parse(asked(tmp_path, AGENTLESS_SIMULATED="yes")) == GpuSample()


def test_what_was_cut_off_is_nothing_known(tmp_path: Path) -> None:
    write(tmp_path, [ONE])
    out = asked(tmp_path)["amd"].stdout
    for at in range(0, len(out.rpartition(b"@amd 0")[0]), 7):
        found = Amd().parse({"amd": Result(0, out[:at])})
        assert (found.processes, bool(found.error)) == (None, True), out[:at]
    assert Amd().parse({}).processes is None


@settings(deadline=None)
@given(st.lists(st.sampled_from(["@node 1 2", "@card renderD128 0000:83:00.0", "id AMD-79ccd55167a2124a", "@process 1"])
                | st.text("@driverkfdnoeqvmbankliu 0123456789:.-?", max_size=40), max_size=30))  # fmt: skip
def test_any_lines_make_a_sample(lines: list[str]) -> None:
    sections = {"amd": Result(0, "\n".join([*lines, "@whole", "@amd 0"]).encode())}
    Amd().parse(sections)
    Amd().parse_topology(sections)


# ------------------------------------------------------------------ faults


@pytest.mark.parametrize(
    ("words", "name", "bad"),
    [
        ("ring gfx_0.0.0 timeout, signaled seq=9, emitted seq=11", "ring timeout", False),
        ("GPU reset begin!", "GPU reset", False),
        ("GPU reset(2) succeeded!", "GPU reset", False),
        ("GPU reset end with ret = -110", "GPU reset", True),
        ("2 uncorrectable hardware errors detected in umc block", "RAS", True),
        ("device lost from bus!", "device lost", True),
        ("ring kiq_2.1.0 test failed (-110)", "ring test", True),
    ],
)
def test_a_line_of_the_kernel_log_is_a_fault_in_its_own_words(words: str, name: str, bad: bool) -> None:
    log = f"[  812.435595] amdgpu 0000:03:00.0: amdgpu: {words}\n@dmesg 0\n@uptime 900.00\n"
    (found,) = faults.parse({faults.SECTION: Result(0, log.encode())}) or ()
    assert (found.pci_bus_id, found.name, found.message, found.logged_at) == ("0000:03:00.0", name, words, 812.435595)
    assert bool(found.meaning) is bad


def test_a_log_that_cannot_be_read_is_not_one_without_faults() -> None:
    assert faults.parse({faults.SECTION: Result(0, b"@dmesg 1\n@uptime 3.0\n")}) is None
    assert faults.parse({faults.SECTION: Result(0, b"@dmesg 0\n@uptime 3.0\n")}) == ()


# ------------------------------------------------------------------ giving


def test_other_vendors_gpus_are_hidden_and_what_is_known_on_the_node_is_looked_up() -> None:
    vendors = GpuVendors((Nvidia(), Amd()))
    given = vendors.injection("docker", [Device("AMD-79ccd55167a2124a", vendor="amd")], unconfined=("amd",))
    assert given.environment == {"NVIDIA_VISIBLE_DEVICES": "void", "AMD_VISIBLE_DEVICES": "none"}
    assert given.arguments == ("--security-opt", "seccomp=unconfined")
    assert given.lookup
    assert given.lookup.values["devices"] == ("AMD-79ccd55167a2124a",)
    none = vendors.injection("docker", [], unconfined=("amd",))
    assert (none.arguments, none.lookup) == ((), None)


def test_a_process_without_a_container_is_told_by_the_unique_id_else_by_the_place() -> None:
    given = Amd().injection("systemd", ["AMD-79ccd55167a2124a", "AMD-04edfb117a17a07d"])
    assert given.environment == {"ROCR_VISIBLE_DEVICES": "GPU-79ccd55167a2124a,GPU-04edfb117a17a07d"}
    assert Amd().injection("systemd", []).environment == {"ROCR_VISIBLE_DEVICES": "-1"}
    assert Amd().injection("systemd", ["AMD-00004300-17"]).lookup


def give(root: Path, *ids: str, shell: list[str] = ["sh"], engine: str = "docker", **values: Any) -> str:  # noqa: B006
    script = RENDERER.script("amd-give.sh.j2", **{"devices": list(ids), "engine": engine, "cdi": False, **values})
    for path in ("/sys/", "/etc/group", "/etc/cdi/", "/var/run/cdi/"):
        script = script.replace(path, f"{root}{path.removeprefix('/sys')}")
    script = script.replace("[ -e /dev/", f"[ -e {root}/dev/").replace('[ -e "/dev/', f'[ -e "{root}/dev/')
    script = script.replace('"/dev/dri/renderD$minor")', f'"{root}/dev/dri/renderD$minor")')
    script = script.replace("%g /dev/kfd $(printf '", f"%g {root}/dev/kfd $(printf '{root}")
    done = subprocess.run([*shell, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else f"refused: {done.stdout}"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The device files are plain ones, whose device number is 0:0."""
    write(tmp_path, [ONE, PLAIN, SPLIT])
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/group").write_text("root:x:0:\nvideo:x:44:ann\nrender:x:109:\naudio:x:63:\n")
    for name in ("kfd", *(f"dri/renderD{number}" for number in (128, 129, 136, 137, 138, 139))):
        (tmp_path / "dev" / name).touch()
    for entry in (tmp_path / "class/drm").iterdir():
        (entry / "dev").write_text("0:0\n")
    return tmp_path


GROUPS = "--group-add 44\n--group-add 109\n"


def given_devices(*renders: int) -> str:
    return "".join(f"--device /dev/dri/renderD{each}\n" for each in renders) + "--device /dev/kfd\n"


@shells
def test_a_launch_finds_the_devices_of_exactly_its_gpus(shell: list[str], node: Path) -> None:
    whole, part = "AMD-dc91284879207f2b", "AMD-cpx2-dc91284879207f2b"
    plain = Amd().parse(asked(node)).gpus[1].uuid
    for ids, renders in (
        (["AMD-79ccd55167a2124a"], [128]),
        ([plain, "AMD-79ccd55167a2124a"], [129, 128]),
        ([whole], [136, 137, 138, 139]),
        ([part], [138]),
    ):
        groups = "".join(line for line in give(node, *ids, shell=shell).splitlines(True) if "group" not in line)
        assert groups == given_devices(*renders)
    assert give(node, part, plain, shell=shell, engine="systemd") == "ROCR_VISIBLE_DEVICES=4,1\n"


def test_the_place_in_rocms_list_is_counted_by_the_numbers_of_the_nodes(tmp_path: Path) -> None:
    write(tmp_path, [AmdCard(f"0000:{bus:02x}:00.0", None, 127 + bus) for bus in range(1, 13)])
    ids = [gpu.uuid for gpu in Amd().parse(asked(tmp_path)).gpus]
    assert give(tmp_path, ids[1], ids[10], engine="systemd") == "ROCR_VISIBLE_DEVICES=1,10\n"


def test_groups_are_those_of_the_node_by_number(node: Path) -> None:
    assert give(node, "AMD-79ccd55167a2124a").endswith(GROUPS)


@pytest.mark.parametrize(
    "device",
    [
        "AMD-0000000000000001",
        "AMD-cpx7-dc91284879207f2b",  # there are four
        "AMD-dpx1-dc91284879207f2b",  # it was divided in another way then
        "AMD-spx0-79ccd55167a2124a",
    ],
)
def test_a_gpu_that_is_not_there_ends_the_launch(device: str, node: Path) -> None:
    assert give(node, device) == f"refused: agentless-amd: no GPU {device}\n"


def test_a_render_node_that_is_another_cards_is_not_given(node: Path) -> None:
    """The compute driver and /sys/class/drm do not agree: neither is believed."""
    links = [node / f"class/drm/renderD{number}/device" for number in (128, 129)]
    for link, other in zip(links, [link.readlink() for link in reversed(links)], strict=True):
        link.unlink()
        link.symlink_to(other)
    assert give(node, "AMD-79ccd55167a2124a") == "refused: agentless-amd: no GPU AMD-79ccd55167a2124a\n"


def test_a_device_file_with_another_number_is_not_given(node: Path) -> None:
    (node / "class/drm/renderD128/dev").write_text("226:128\n")
    refusal = "refused: agentless-amd: no device 226:128 in /dev/dri/renderD128\n"
    assert give(node, "AMD-79ccd55167a2124a") == refusal


def test_a_node_without_kfd_gives_nothing(node: Path) -> None:
    (node / "dev/kfd").unlink()
    assert give(node, "AMD-79ccd55167a2124a") == "refused: agentless-amd: no /dev/kfd\n"


CDI = {
    "cdiVersion": "0.6.0",
    "kind": "amd.com/gpu",
    "devices": [
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": f"/dev/dri/renderD{n}"} for n in (128, 129)]}},
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/card1"}, {"path": "/dev/dri/renderD129"}]}},
        {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/card2"}, {"path": "/dev/dri/renderD128"}]}},
    ],
    "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]},
}
YAML = """\
cdiVersion: 0.6.0
kind: amd.com/gpu
devices:
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/dri/card2
    - path: /dev/dri/renderD128
"""


@shells
@pytest.mark.parametrize("text", [json.dumps(CDI), json.dumps(CDI, indent=2), YAML], ids=["line", "json", "yaml"])
def test_a_cdi_device_is_taken_by_its_render_node_and_not_by_its_number(
    shell: list[str], text: str, node: Path
) -> None:
    (node / "etc/cdi/amd.json").write_text(text)
    found = give(node, "AMD-79ccd55167a2124a", shell=shell, cdi=True)
    assert found.startswith("--device amd.com/gpu=1\n--device /dev/kfd\n")


def test_a_gpu_that_the_cdi_list_lacks_is_given_by_its_files(node: Path) -> None:
    (node / "etc/cdi/amd.json").write_text(json.dumps(CDI))
    assert give(node, "AMD-cpx1-dc91284879207f2b", cdi=True).startswith("--device /dev/dri/renderD137\n")


# ------------------------------------------------------------------ doctor


GPU = GpuReading(0, "AMD-79ccd55167a2124a", vendor="amd")
NODE = AmdCheckup(
    renders={GPU.uuid: 128, "AMD-dc91284879207f2b": 136}, parts=((128, 0x8300), (136, 0xC00), (137, 0x10000C00))
)
PART = replace(GPU, uuid="AMD-cpx1-dc91284879207f2b", kind="partition", parent="AMD-dc91284879207f2b", part=1)


@pytest.mark.parametrize(
    ("saw", "gpu", "verdict"),
    [
        ("amd /dev/kfd\namd /dev/dri/renderD128\n", GPU, "ok"),
        ("null\nkfd\ndri\nrenderD128\n", GPU, "ok"),
        ("amd /dev/kfd\namd /dev/dri/renderD128\namd /dev/dri/renderD129\n", GPU, "failed"),
        ("amd /dev/kfd\namd /dev/dri/renderD129\n", GPU, "failed"),
        ("amd /dev/dri/renderD128\n", GPU, "failed"),
        ("null\n", GPU, "failed"),
        ("amd /dev/kfd\namd /dev/dri/renderD137\n", PART, "ok"),
        ("amd /dev/kfd\namd /dev/dri/renderD136\n", PART, "failed"),
        ("amd /dev/kfd\namd /dev/dri/renderD136\namd /dev/dri/renderD137\n", replace(GPU, uuid=PART.parent), "ok"),
    ],
)
def test_a_container_has_to_have_exactly_the_render_nodes_of_its_gpu(saw: str, gpu: GpuReading, verdict: str) -> None:
    assert proof(saw, gpu, NODE).verdict == verdict


def test_what_one_source_lacks_comes_from_another() -> None:
    assert Card(total=1).filled(Card(total=2, used=3)) == Card(total=1, used=3)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("AMD-79ccd55167a2124a", "ROCR_VISIBLE_DEVICES=GPU-79ccd55167a2124a"),
        ("AMD-00004300-17", "printf 'export %s\\n' \"$given\""),
    ],
)
def test_a_service_is_started_with_the_gpus_that_rocm_may_use(device: str, words: str) -> None:
    at = Placement("node1", (0,), (device,), vendor="amd")
    of = task("t1", spec=spec(container="NULL"))
    script = systemd_engine(NodeConfig("node1", "h"), RENDERER, SIGNER).launches([Launch(of, at)]).script
    assert words in script
    assert subprocess.run(["sh", "-n"], input=script.encode(), check=False).returncode == 0


def test_a_container_is_created_with_what_was_found_on_the_node() -> None:
    at = Placement("node1", (0,), ("AMD-79ccd55167a2124a",), vendor="amd")
    of = task("t1", spec=spec())
    script = docker_engine(NodeConfig("node1", "h"), RENDERER, SIGNER).launches([Launch(of, at)]).script
    assert "  docker create $given --pull never --name agentless-t1" in script


SAID = """\
module
pci 0000:83:00.0 amdgpu
dev /dev/kfd root:render:660 open
dev /dev/dri/renderD128 root:render:660 open
group video 44
group render 109
user ann 1000 ann,docker
render AMD-79ccd55167a2124a renderD128
kfd 128 33536
tool rocm-smi
"""


def checked(said: str, **changes: Any) -> dict[str, Any]:
    gpu = reading("node1", 0, vendor="amd", uuid="AMD-79ccd55167a2124a", **changes)
    node = cluster(seen("node1", sample=GpuSample((gpu,)), faults=())).nodes["node1"]
    found = Amd().checks({checkup.SECTION: Result(0, said.encode())}, node, SYSTEM)
    return {check.name: check for check in (*found.before, *found.after)}


def test_a_node_whose_devices_are_in_order_has_nothing_to_mend() -> None:
    found = checked(SAID)
    assert {check.verdict for check in found.values()} == {"ok"}
    assert found["amd-kfd"].seen == "/dev/kfd and 1 render node; rocm-smi"


@pytest.mark.parametrize(
    ("was", "now", "name", "words"),
    [
        ("amdgpu\n", "\n", "amd-bus", "modprobe amdgpu"),
        ("dev /dev/kfd root:render:660 open\n", "", "amd-kfd", "dmesg | grep -i kfd"),
        (
            "dev /dev/kfd root:render:660 open",
            "dev /dev/kfd root:render:660 ",
            "amd-groups",
            "usermod -aG video,render ann",
        ),
        ("module\n", "wsl\n", "amd-wsl", "Boot Linux"),
    ],
)
def test_what_keeps_tasks_from_the_cards_is_said_with_the_fix(was: str, now: str, name: str, words: str) -> None:
    check = checked(SAID.replace(was, now))[name]
    assert check.verdict != "ok"
    assert words in check.fix


def test_a_card_that_the_compute_driver_lacks_is_not_said_to_be_in_order(tmp_path: Path) -> None:
    other, lacks = sample(tmp_path, ONE, replace(PLAIN, kfd=False)).gpus
    assert (other.barred, lacks.barred.partition(",")[0]) == ("", "/dev/kfd does not have it")
    check = checked(SAID, barred=lacks.barred)["amd-kfd"]
    assert (check.verdict, check.seen) == ("failed", "/dev/kfd without GPU 0")
    assert check.wrong == f"GPU 0: {lacks.barred}"


def test_a_windows_with_rocm_is_refused_in_words() -> None:
    assert checked("wsl\ntool rocm\n")["amd-wsl"].wrong == "AMD GPUs in WSL2 are not supported"


@shells
def test_what_doctor_asks_is_answered_in_every_shell(shell: list[str], node: Path) -> None:
    script = (
        RENDERER.script("amd-checkup.sh.j2").replace("/sys/", f"{node}/").replace("/etc/group", f"{node}/etc/group")
    )
    done = subprocess.run([*shell, "-c", script], capture_output=True, check=True)
    found = checkup.parse({checkup.SECTION: Result(0, done.stdout)})
    assert found.groups == {"video": 44, "render": 109}
    assert found.renders["AMD-dc91284879207f2b"] == 136
    assert (139, 3 << 28 | 0xC00) in found.parts


@pytest.mark.slow
def test_a_driver_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    write(tmp_path, [ONE])
    file = tmp_path / "devices/pci0000:00/0000:83:00.0/gpu_busy_percent"
    file.unlink()
    os.mkfifo(file)
    found = Amd().parse(asked(tmp_path))
    assert (found.processes, found.hung) == (None, True)
