"""The files of Slurm that are made from nodes. Those in `data/slurm` are of a mixed inventory.

`AGENTLESS_WRITE=1 pytest tests/pure/test_slurm_config.py` writes them.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.cli.slurm import check, written
from agentless.errors import Refused
from agentless.model.command import Result
from agentless.model.nodes.cluster import Gpu, Node, Observation
from agentless.model.nodes.gpu import GpuReading, GpuTopology
from agentless.model.nodes.node import HostFacts, NodeConfig, NumaNode
from agentless.model.scheduling.reservation import Reservation
from agentless.remote import slurm_look
from agentless.rules.nodes.survey import survey
from agentless.rules.slurm.check import by_sinfo, by_slurmctld, by_slurmd
from agentless.rules.slurm.conf import Wanted
from agentless.rules.slurm.files import SlurmFiles, slurm_files
from agentless.rules.slurm.lines import comment, entry
from agentless.rules.slurm.machine import Look, Machine, SlurmGpu, machine_of
from tests.pure.build import NOW, reading, seen

DATA = Path(__file__).parent / "data" / "slurm"
WANTED = Wanted("controller.lab", "pack", 7 * 86400.0, preemptible=False)
PREEMPTIBLE = replace(
    WANTED,
    preemptible=True,
    reservations=(
        Reservation("r1a2", "a100-1", (0,), "ann@laptop", NOW, NOW + 3600, "deadline"),
        Reservation("r3b4", "t4", (), None, NOW, NOW + 7200, "new disks"),
        Reservation("r5c6", "silent", (), "ben", NOW, NOW + 7200),
    ),
)
LINE = re.compile(r"[A-Za-z]+=[A-Za-z0-9._:,/()+@-]+( [A-Za-z]+=[A-Za-z0-9._:,/()+@-]+)*")


def bus(index: int) -> str:
    return f"0000:{index + 1:02x}:00.0"


def gpu(node: str, index: int, name: str, vendor: str = "nvidia", **more: object) -> GpuReading:
    return reading(node, index, name=name, vendor=vendor, pci_bus_id=bus(index), **more)


def host(*numa: tuple[str, tuple[int, ...]], cores: int = 32, memory: int = 131072) -> HostFacts:
    nodes = [NumaNode(number, cpus, tuple(map(bus, gpus))) for number, (cpus, gpus) in enumerate(numa)]
    return HostFacts(cores, memory, tuple(nodes))


def look(name: str, files: str = "", sockets: int = 2, cores: int = 8, threads: int = 2) -> Look:
    """A node whose CPUs are numbered as usual: the second threads of all cores follow the first ones."""
    count = sockets * cores
    cpus = {cpu: (cpu % count // cores, cpu % count) for cpu in range(count * threads)}
    devices = {bus(index): f"{files}{index + 128 * ('render' in files)}" for index in range(8)} if files else {}
    return Look(name, f"192.0.2.{len(name)}", cpus, devices)


def watched(node: str, gpus: tuple[GpuReading, ...], **changes: object) -> Observation:
    found = seen(node, 0, **changes)
    assert found.sample
    return replace(found, sample=replace(found.sample, gpus=gpus))


def mixed(wanted: Wanted = WANTED) -> SlurmFiles:
    """Two nodes with A100s, one with MIG, an AMD node, a T4 beside a card of nobody, one without GPUs, a silent one."""
    a100 = "NVIDIA A100-SXM4-40GB"
    numa = host(("0-7,16-23", (0, 1)), ("8-15,24-31", (2, 3)))
    links = GpuTopology({(0, 1): 17, (2, 3): 17, (0, 2): 1, (0, 3): 1, (1, 2): 1, (1, 3): 1}, {0: 0, 1: 0, 2: 1, 3: 1})
    whole = gpu("mig", 0, "NVIDIA H100 80GB HBM3", divided=True)
    parts = [
        replace(whole, uuid=f"MIG-{n}", divided=False, kind="slice", parent=whole.uuid, part=n, profile=profile)
        for n, profile in enumerate(("3g.40gb", "1g.10gb", "1g.10gb"))
    ]
    nodes = {
        "a100-1": watched("a100-1", tuple(gpu("a100-1", n, a100) for n in range(4)), host=numa, topology=links),
        "a100-2": watched("a100-2", (gpu("a100-2", 0, "NVIDIA A100 80GB PCIe"),), host=host(("0-31", (0,)))),
        "mig": watched("mig", (whole, *parts, gpu("mig", 1, "NVIDIA H100 80GB HBM3"))),
        "amd.lab": watched("amd", tuple(gpu("amd", n, "AMD Instinct MI300X", "amd") for n in range(2))),
        "t4": watched("t4", (gpu("t4", 0, "Tesla T4"), gpu("t4", 1, "Gaudi", "acme"), gpu("t4", 2, "Tesla T4"))),
        "Default": watched("Default", ()),
        "silent": Observation(error="no answer for 8 s"),
    }
    settings: dict[str, dict[str, object]] = {
        "a100-1": {"fabric": "pod1/leaf1", "labels": {"rack": "a", "site": "lab"}, "fabric_address": "10.1.0.1"},
        "a100-2": {"fabric": "pod1/leaf2", "labels": {"rack": "a", "site": "lab"}},
        "mig": {"fabric": "pod1", "labels": {"rack": "b", "site": "lab"}},
        "t4": {"exclude_gpus": (2,), "labels": {"site": "lab", "owner": "Bob's, #1\n"}},
    }
    configs = {name: NodeConfig(name, name, **settings.get(name, {})) for name in nodes}  # type: ignore[arg-type]
    looks = {
        "a100-1": look("gpu1.example.org", "/dev/nvidia"),
        "amd.lab": look("amd", "/dev/dri/renderD"),
        "Default": replace(look("box"), cores={}),
    }
    made = {
        name: machine_of(node, looks.get(name, look(name)))
        for name, node in survey(configs, nodes, (), NOW).nodes.items()
    }
    machines = [each for each in made.values() if isinstance(each, Machine)]
    return slurm_files(machines, wanted, [f"{name}: {why}" for name, why in made.items() if isinstance(why, str)])


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("slurm.conf", WANTED),
        ("gres.conf", WANTED),
        ("topology.conf", WANTED),
        ("cgroup.conf", WANTED),
        ("slurmdbd.conf.example", WANTED),
        ("slurm-preemptible.conf", PREEMPTIBLE),
    ],
)
def test_the_files_of_a_mixed_inventory(file: str, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agentless.rules.slurm.conf.format_moment", lambda seconds: f"2027-01-15 {8 + (seconds - NOW) // 3600:02.0f}:00"
    )
    text = mixed(wanted).texts[file.replace("-preemptible", "")]
    if os.environ.get("AGENTLESS_WRITE"):
        DATA.joinpath(file).write_text(text)
    assert text == DATA.joinpath(file).read_text()


def test_the_gpus_are_declared_before_the_nodes() -> None:
    lines = mixed().texts["slurm.conf"].splitlines()
    assert lines.index("GresTypes=gpu") < min(n for n, line in enumerate(lines) if line.startswith("NodeName="))


def test_nodes_without_gpus_and_without_a_network_need_fewer_files() -> None:
    made = slurm_files([Machine("n1", "n1", "", 4, None, 8000, {}, "")], WANTED, ())
    assert "topology.conf" not in made.texts
    assert not re.search("GresTypes|TopologyPlugin|Gres=", made.texts["slurm.conf"])
    assert "PartitionName=cpu Nodes=n1 Default=YES State=UP" in made.texts["slurm.conf"]


def test_a_gpu_that_has_vanished_is_left_out_and_the_one_in_its_place_is_not() -> None:
    found = machine_of(vanished(), Look())
    assert isinstance(found, Machine)
    assert [each.model for each in found.gpus] == ["Tesla T4"]
    assert found.left_out == ("GPU 0: the driver no longer lists it",)


def test_a_node_whose_driver_does_not_answer_is_left_out() -> None:
    assert machine_of(vanished(error="nvidia-smi: hangs"), Look()) == "its GPUs cannot be read: nvidia-smi: hangs"


def vanished(**changes: object) -> Node:
    """A node with a GPU in the place of another one."""
    now = watched("n1", (gpu("n1", 0, "Tesla T4"),))
    assert now.sample
    now = replace(now, sample=replace(now.sample, **changes))  # type: ignore[arg-type]
    node = survey({"n1": NodeConfig("n1", "n1")}, {"n1": now}, (), NOW).nodes["n1"]
    return replace(node, gpus=(*node.gpus, Gpu(gpu("gone", 0, "Tesla P4"), "unhealthy")))


def kinds(*models: str) -> list[str]:
    """The types of GPUs of these models, each in a node of its own."""
    machines = [
        Machine(f"n{n}", "", "", 4, None, 8000, {}, "", (SlurmGpu("0", "nvidia", model, file="/dev/nvidia0"),))
        for n, model in enumerate(models)
    ]
    return re.findall(r"Type=(\S+)", slurm_files(machines, WANTED, ()).texts["gres.conf"])


def test_a_type_is_a_part_of_the_name_that_slurm_makes_of_the_drivers() -> None:
    models = {
        "NVIDIA GeForce RTX 3090": "rtx_3090",
        "NVIDIA H100 80GB HBM3": "h100_80gb_hbm3",
        "Tesla V100-SXM2-32GB": "v100",
        "Quadro P2000": "p2000",
        "NVIDIA RTX A6000": "rtx_a6000",
        "AMD Instinct MI300X": "mi300x",
    }
    assert kinds(*models) == list(models.values())
    assert all(kind in model.lower().replace(" ", "_") for model, kind in models.items())


def test_two_models_never_have_one_type() -> None:
    assert kinds("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB") == ["a100_sxm4_40gb", "a100_sxm4_80gb"]


def test_no_type_reads_like_a_number_of_gpus() -> None:
    assert kinds("", "8", "NVIDIA 4G", "Größe\n") == ["gpu", "gpu_8", "gpu_4g", "gr"]


names = st.text(max_size=12) | st.sampled_from(
    ["a\nNodeName=x", "# USER_CUSTOMIZED=true", "a,b", "a=b", "x\\", "all", "DEFAULT", "\x1b[2J", "é", "n[1-9]", "/"]
)
gpus = st.builds(
    SlurmGpu, names, st.sampled_from(["nvidia", "amd"]), names, profile=st.just("") | names, file=names, cores=names
)
machines = st.lists(
    st.builds(
        Machine,
        names,
        names,
        names,
        st.integers(1, 9999),
        st.none() | st.tuples(st.just(2), st.just(4), st.just(1)),
        st.integers(1, 1 << 26),
        st.dictionaries(names, names, max_size=3),
        names,
        st.lists(gpus, max_size=3).map(tuple),
        st.lists(names, max_size=2).map(tuple),
    ),
    max_size=3,
    unique_by=lambda machine: machine.name,
)
booked = st.lists(
    st.builds(Reservation, names, names, st.just(()), st.none() | names, st.just(NOW), st.just(NOW), names), max_size=2
)


@settings(max_examples=20)
@given(machines, st.lists(names, max_size=2), names, booked)
def test_no_name_from_outside_makes_a_line_of_its_own(
    found: list[Machine], silent: list[str], controller: str, reservations: list[Reservation]
) -> None:
    booked_here = [replace(each, node=found[0].name) for each in reservations] if found else []
    made = slurm_files(found, replace(PREEMPTIBLE, host=controller, reservations=tuple(booked_here)), silent)
    for text in made.texts.values():
        for line in text.split("\n"):
            assert line.isprintable()
            assert not line.endswith("\\")
            assert not line or line.startswith("# ") or LINE.fullmatch(line), line
        assert not written.is_customized(text)
    lines = [line for line in made.texts["slurm.conf"].split("\n") if line.startswith("NodeName=")]
    assert lines == list(made.lines.values())
    assert len({line.partition(" ")[0].lower() for line in lines}) == len(found)


def test_a_value_is_one_value_and_a_comment_one_line() -> None:
    assert entry(A="b c\n#,x=\\", B="", C=None, D=0) == "A=b_c__,x__ D=0"
    assert comment("a\nb\\") == "# a b/"


# ------------------------------------------------------------------ what a node says


def test_what_a_node_says_is_read() -> None:
    said = slurm_look.parse(
        Result(
            0,
            b"host gpu1.lab\nssh 192.0.2.1 4000 ::ffff:192.0.2.7 22\n"
            b"cpu0/topology/physical_package_id:0\ncpu2/topology/physical_package_id:1\n"
            b"cpu0/topology/thread_siblings_list:0,2\ncpu2/topology/thread_siblings_list:0-2\n"
            b"nvidia 0000:3b:00.0 4\nrender 0000:3b:00.0 renderD128\nrender 0000:83:00.0 renderD129\n"
            b"render amdgpu_xcp_0 renderD130\nslurmd NodeName=gpu1 CPUs=4\nsinfo gpu1 gpu:4\n",
        )
    )
    devices = {"0000:3b:00.0": "/dev/nvidia4", "0000:83:00.0": "/dev/dri/renderD129"}
    cores = {0: (0, 0), 2: (1, 0)}
    assert said == Look("gpu1.lab", "192.0.2.7", cores, devices, "NodeName=gpu1 CPUs=4", "", "gpu1 gpu:4")


def test_nonsense_of_a_node_is_left_out() -> None:
    text = (
        b"host a b\nhost x;y\nssh a b c d\ncpu0/topology/core:1\nnvidia x 0\nnvidia 0000:3b:00.0 ../x\n\xff\nrender x\n"
    )
    assert slurm_look.parse(Result(0, text * 9000)) == Look()


@given(st.text())
def test_no_answer_of_a_node_is_an_exception(text: str) -> None:
    slurm_look.parse(Result(0, text.encode(errors="replace")))


# ------------------------------------------------------------------ compared with the daemons

WRITTEN = (
    "NodeName=n1 NodeHostname=gpu1 CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=7800 "
    "Gres=gpu:a100:2 State=UNKNOWN"
)
SLURMD = "NodeName=gpu1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory={}"
SCONTROL = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=4  CPUAlloc=0 CPUTot={} AvailableFeatures=(null) Gres={} NodeAddr=n1 "
    "NodeHostName=gpu1 RealMemory=7800 AllocMem=0 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=2"
)


def told(differences: object) -> list[tuple[str, str, str]]:
    return [(each.key, each.written, each.found) for each in differences]  # type: ignore[attr-defined]


def test_daemons_that_agree_are_no_difference() -> None:
    assert told(by_slurmd("n1", WRITTEN, SLURMD.format(7999))) == []
    assert told(by_slurmctld("n1", WRITTEN, SCONTROL.format(8, "gpu:A100:2(S:0-1)"))) == []
    assert told(by_sinfo("n1", WRITTEN, "n1 gpu:a100:2(S:0)")) == []
    assert told(by_sinfo("n1", "NodeName=n1 CPUs=1", "n1 (null)")) == []


def test_daemons_that_disagree_are_told_key_by_key() -> None:
    assert told(by_slurmd("n1", WRITTEN, SLURMD.format(7700))) == [("RealMemory", "7800", "7700")]
    assert told(by_slurmctld("n1", WRITTEN, SCONTROL.format(4, "(null)"))) == [
        ("CPUs", "8", "4"),
        ("Gres", "gpu:a100:2", "-"),
    ]
    assert told(by_sinfo("n1", WRITTEN, "n1 gpu:a100:1")) == [("Gres", "gpu:a100:2", "gpu:a100:1")]


@given(st.text(), st.text())
def test_whatever_the_daemons_say_is_compared(line: str, said: str) -> None:
    for compared in (by_slurmd, by_slurmctld, by_sinfo):
        list(compared("n1", line, said))


def node(**said: str) -> dict[str, str]:
    return {"node": "n1", "line": WRITTEN, "slurmd": "", "slurmctld": "", "sinfo": "", **said}


@pytest.fixture
def _no_slurm_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("_no_slurm_here")
def test_a_check_shows_what_differs_and_who_did_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.compare([node(slurmd=SLURMD.format(7700)), {**node(), "node": "n2"}])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["n1", "RealMemory", "7800", "7700", "slurmd", "-C"]
    assert printed.err.splitlines() == [
        "No answer from slurmd -C on n2",
        "slurmctld does not answer, or does not have n1, n2",
    ]


@pytest.mark.usefixtures("_no_slurm_here")
def test_a_check_without_differences_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = node(slurmctld=SCONTROL.format(8, "gpu:a100:2"), sinfo="n1 gpu:a100:2", slurmd=SLURMD.format(7800))
    assert not check.compare([said])
    assert capsys.readouterr() == ("No differences\n", "")


@pytest.mark.usefixtures("_no_slurm_here")
def test_a_check_without_any_slurm_is_refused() -> None:
    with pytest.raises(Refused, match="no slurmd on the nodes"):
        check.compare([node()])


def test_slurm_on_this_machine_is_asked_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("scontrol", SCONTROL.format(8, "gpu:a100:2")), ("sinfo", "n1 gpu:a100:1")):
        tmp_path.joinpath(name).write_text(f"#!/bin/sh\necho '{said}'\n")
        tmp_path.joinpath(name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check.compare([node(sinfo="n1 gpu:a100:2")])
    assert "gpu:a100:1" in capsys.readouterr().out


# ------------------------------------------------------------------ files that are there


def test_a_file_is_written_anew_unless_it_is_customized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = mixed().texts
    written.write(tmp_path / "etc/slurm", first)
    assert {path.name: path.read_text() for path in (tmp_path / "etc/slurm").iterdir()} == dict(first)
    own = tmp_path / "etc/slurm/gres.conf"
    own.write_text("AutoDetect=nvml\n# USER_CUSTOMIZED=true\n")
    capsys.readouterr()
    written.write(tmp_path / "etc/slurm", mixed(PREEMPTIBLE).texts)
    said = capsys.readouterr().out.replace(f"{tmp_path}/etc/slurm/", "")
    assert said.splitlines() == [
        "Wrote slurm.conf anew",
        "Kept gres.conf: it has the line # USER_CUSTOMIZED=true",
        "Unchanged: cgroup.conf",
        "Unchanged: topology.conf",
        "Unchanged: slurmdbd.conf.example",
    ]
    assert own.read_text() == "AutoDetect=nvml\n# USER_CUSTOMIZED=true\n"


def test_a_file_that_somebody_else_wrote_is_kept_under_another_name(tmp_path: Path) -> None:
    old = tmp_path / "slurm.conf"
    old.write_text("ClusterName=ours\n")
    old.chmod(0o600)
    written.write(tmp_path, {"slurm.conf": "# Written by: agentless slurm config\n"})
    assert (tmp_path / "slurm.conf.before").read_text() == "ClusterName=ours\n"
    assert old.stat().st_mode & 0o777 == 0o600
    old.write_text("ClusterName=ours again\n")
    with pytest.raises(Refused, match="exists already"):
        written.write(tmp_path, {"slurm.conf": "# Written by: agentless slurm config\n"})
    assert old.read_text() == "ClusterName=ours again\n"


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    with pytest.raises(Refused, match="cannot write"):
        written.write(tmp_path / "file", {"slurm.conf": ""})
