"""Containers that doctor starts: what they print, and what that proves."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.engines.docker import trial
from agentless.errors import Held, NodeBroken, RuntimeFailed
from agentless.formats import look_image
from agentless.gpus.nvidia.checkup import NvidiaCheckup
from agentless.gpus.nvidia.proof import proof
from agentless.model.command import Result
from agentless.model.nodes.cluster import Gpu
from agentless.model.nodes.trial import Proof, TrialAnswer
from agentless.model.scheduling.reservation import Reservation
from agentless.rules.nodes.checks import trials
from tests.pure.build import NOW, cluster, reading, seen

GPU, OTHER = (replace(reading("node1", at), uuid=f"GPU-5d1c0000-0000-0000-0000-00000000000{at}") for at in (0, 1))
NODE = NvidiaCheckup(minors={GPU.uuid: 0, OTHER.uuid: 1}, devices=frozenset({"nvidia0", "nvidia1"}))
SOURCES = Path(__file__).parent / "data" / "look"
ASSEMBLERS = {"x86_64": "as", "aarch64": "as" if platform.machine() == "aarch64" else "aarch64-linux-gnu-as"}


def listed(*gpus: Any) -> str:
    return "".join(f"GPU {at}: NVIDIA H100 (UUID: {gpu.uuid})\n" for at, gpu in enumerate(gpus))


@pytest.mark.parametrize(
    ("saw", "node", "verdict"),
    [
        (listed(GPU), NODE, "ok"),
        (listed(GPU, OTHER), NODE, "failed"),
        (listed(OTHER), NODE, "failed"),
        ("null\nnvidia0\nnvidiactl\n", NODE, "ok"),
        ("nvidia0\nnvidia1\n", NODE, "failed"),
        ("nvidia1\n", NODE, "failed"),
        ("null\n", NODE, "failed"),
        (f"NVIDIA_VISIBLE_DEVICES={GPU.uuid}\n", NODE, "failed"),
        (f"NVIDIA_VISIBLE_DEVICES={GPU.uuid}\n", NvidiaCheckup(), "ok"),
        (f"NVIDIA_VISIBLE_DEVICES={OTHER.uuid}\n", NvidiaCheckup(), "failed"),
        ("", NvidiaCheckup(), "failed"),
    ],
)
def test_a_container_has_to_see_exactly_its_gpu(saw: str, node: NvidiaCheckup, verdict: str) -> None:
    assert proof(saw, GPU, node).verdict == verdict


PART = replace(GPU, uuid=f"MIG-{GPU.uuid[4:]}", parent=GPU.uuid, part=1, kind="slice")
IN_SLICE = f"GPU 0: NVIDIA H100 (UUID: {GPU.uuid})\n  MIG 1g.10gb     Device  0: (UUID: {PART.uuid})\n"


@pytest.mark.parametrize(
    ("saw", "node", "verdict"),
    [
        (IN_SLICE, NODE, "ok"),
        (IN_SLICE + f"  MIG 1g.10gb     Device  1: (UUID: MIG-{OTHER.uuid[4:]})\n", NODE, "failed"),
        (listed(GPU), NODE, "failed"),
        ("nvidia0\n", NODE, "ok"),
        ("nvidia1\n", NODE, "failed"),
        (f"NVIDIA_VISIBLE_DEVICES={PART.uuid}\n", NvidiaCheckup(), "ok"),
        (f"NVIDIA_VISIBLE_DEVICES={GPU.uuid}\n", NvidiaCheckup(), "failed"),
    ],
)
def test_a_container_has_to_see_exactly_its_slice(saw: str, node: NvidiaCheckup, verdict: str) -> None:
    assert proof(saw, PART, node).verdict == verdict


def test_it_is_said_what_was_not_proved() -> None:
    assert "could not be compared" in proof(f"export A='{GPU.uuid}'", GPU, NvidiaCheckup()).words
    assert "which GPU it is, is not known" in proof("nvidia0\n", GPU, NvidiaCheckup()).words


CID = "0a" * 32
OUTPUT = f"""\
@launch
said  {CID}
code 0
saw nvidia0
saw A=1
times "2026-01-01T10:00:00.5Z" "2026-01-01T10:00:01.75Z"
@launch
said  held|GPU-1|2aaaaaaaaaa|bob
code 75
@launch
said  {CID}
code 0
saw agentless: late
@end
"""


def test_the_answer_of_each_container_is_read() -> None:
    ran, held, late = trial.parse(Result(0, OUTPUT.encode()))
    assert (ran.saw, ran.took, ran.launch.exit_code) == ("nvidia0\nA=1", 1.25, 0)
    assert (held.launch.exit_code, held.launch.out, held.took) == (75, "held|GPU-1|2aaaaaaaaaa|bob", None)
    assert late.is_late


def test_those_whose_turn_did_not_come_are_missing() -> None:
    assert len(trial.parse(Result(137, OUTPUT.partition("code 75")[0].encode()))) == 1
    assert trial.parse(Result(0, b"")) == []
    with pytest.raises(RuntimeFailed, match="no space left"):
        trial.parse(Result(1, b"failed write: no space left\n"))


def verdict(error: Any = None, found: Any = None, **changes: Any) -> tuple[str, str, str]:
    answer = replace(TrialAnswer(Result(0), "", 0.5), **changes)
    check = trials.verdict(Gpu(GPU, "free"), answer, error, found, "busybox")
    return check.name, check.verdict, check.wrong or check.seen


def test_each_end_of_a_container_has_its_verdict() -> None:
    assert verdict(found=Proof("ok", "sees it")) == ("run 0", "ok", "sees it")
    assert verdict(found=Proof("failed", "sees two")) == ("run 0", "failed", "sees two")
    assert verdict(Held("in use by bob")) == ("run 0", "skipped", "in use by bob")
    assert verdict(NodeBroken("no hook", "gpus")) == ("run 0", "failed", "no hook")
    assert verdict(RuntimeFailed("bad image")) == ("run 0", "failed", "bad image")
    assert verdict(is_late=True) == ("run 0", "failed", "the container did not end in time")
    assert trials.verdict(None, TrialAnswer(Result(0)), None, None, "busybox").seen == "a container of busybox runs"
    assert trials.verdict(Gpu(GPU, "free"), None, None, None, "busybox").verdict == "failed"


def test_a_slow_start_is_a_warning() -> None:
    assert [check.verdict for took in ([], [0.1, 0.2], [0.1, 30.0]) for check in trials.start(took)] == [
        "ok",
        "warning",
    ]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no program for this processor")
def test_our_program_prints_devices_and_variables(tmp_path: Path) -> None:
    program = look_image.program(platform.machine())
    assert program
    file = tmp_path / "look"
    file.write_bytes(program)
    file.chmod(0o755)
    ran = subprocess.run([file], env={"A": "GPU-1", "B": "2"}, capture_output=True, check=True, timeout=30)
    assert {os.fsencode(name) for name in os.listdir("/dev")} <= set(ran.stdout.replace(b"\0", b"\n").split(b"\n")) | {
        part[1:] for part in ran.stdout.split(b"\0")
    }
    assert ran.stdout.endswith(b"A=GPU-1\0B=2\0")


@pytest.mark.parametrize("machine", ASSEMBLERS)
def test_our_program_is_what_its_source_says(machine: str, tmp_path: Path) -> None:
    assembler = shutil.which(ASSEMBLERS[machine])
    if assembler is None or (machine == "x86_64" != platform.machine()):
        pytest.skip(f"no assembler for {machine}")
    done = tmp_path / "look.o"
    subprocess.run([assembler, SOURCES / f"{machine}.s", "-o", done], check=True, timeout=30)
    program = look_image.program(machine)
    assert program
    assert program[120:] in done.read_bytes()


def test_a_processor_without_a_program_has_no_image() -> None:
    assert look_image.archive("riscv64", "1-a") is None
    assert len(look_image.archive("aarch64", "1-a") or b"") < 8192


def test_nothing_is_started_on_a_drained_node() -> None:
    node = replace(cluster(seen("node1", gpus=0)).nodes["node1"], drained=True)
    assert trials.unfit(node) == "skipped; node1 is drained"


def kept(index: int | None, asked_by: str, **changes: Any) -> str | None:
    fields: dict[str, Any] = {"gpus": (0,), "owner": "ann", "begin": NOW - 1, "end": NOW + 3600, "reason": "deadline"}
    node = cluster(seen("node1", gpus=0 if index is None else 2)).nodes["node1"]
    node = replace(node, reservations=(Reservation("r", "node1", **{**fields, **changes}),))
    check = trials.left_alone(node, None if index is None else node.gpus[index], asked_by, NOW)
    return check.seen if check and check.verdict == "skipped" else None


def test_what_is_reserved_for_others_is_left_alone_and_it_is_said_for_whom() -> None:
    assert (kept(0, "bob@desk") or "").startswith("GPU 0 is reserved for ann from ")
    assert (kept(0, "bob@desk") or "").endswith("(deadline)")
    assert (kept(None, "bob@desk", gpus=()) or "").startswith("node1 is reserved for ann from ")
    assert kept(1, "bob@desk", gpus=(), owner=None)
    # It would begin while the containers run.
    assert kept(0, "bob@desk", begin=NOW + 60)
    assert not kept(0, "bob@desk", begin=NOW + 600)
    assert not kept(0, "ann@desk")
    assert not kept(1, "bob@desk")
    assert not kept(None, "bob@desk")


def test_of_a_divided_gpu_only_the_reserved_slice_is_left_alone() -> None:
    reserved = Reservation("r", "node1", ("0/1",), "ann", NOW - 1, NOW + 3600)
    parts = [Gpu(replace(PART, part=part), "free") for part in (0, 1)]
    node = replace(cluster(seen()).nodes["node1"], reservations=(reserved,))
    assert [bool(trials.left_alone(node, part, "bob@desk", NOW)) for part in parts] == [False, True]


def test_two_trials_have_images_of_their_own() -> None:
    """Neither by its name nor by its id: whoever removes one takes nothing from the other."""
    for entry in ("manifest.json", "config.json"):
        one, two = (member(look_image.archive("x86_64", mark) or b"", entry) for mark in ("1-aaaaaaaa", "1-bbbbbbbb"))
        assert one != two
    [manifest] = json.loads(member(look_image.archive("x86_64", "1-aaaaaaaa") or b"", "manifest.json"))
    assert manifest["RepoTags"] == ["agentless-doctor:1-aaaaaaaa"]


def member(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(name)
        assert file
        return file.read()
