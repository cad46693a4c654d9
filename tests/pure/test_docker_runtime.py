"""Docker: what is said to it, and what its answer to a launch means.

The scripts in `data/docker` are written by `AGENTLESS_WRITE=1 pytest tests/pure/test_docker_runtime.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentless.engines.docker.engine import DockerEngine
from agentless.errors import ImageMissing, NoAnswer, NodeBroken, Refused, RuntimeFailed
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.spec import Mount, Volume
from agentless.model.tasks.task import Placement, Task
from agentless.model.terminal import Attachment, InputKind, Size
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.pure.build import CID, NOW, SIGNER, placement, spec, task

DATA = Path(__file__).parent / "data" / "docker"
CONFIG = NodeConfig("node1", "h", user="ann")
UUIDS = ("GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a", "GPU-1c9f3c1e-7d52-4a4e-8f6b-0a9b8c7d6e5f")


def docker(*words: str) -> DockerEngine:
    return docker_engine(replace(CONFIG, docker=words or ("docker",)), Renderer([template_dir()]), SIGNER)


# ------------------------------------------------------------------------------------------------------------ launch

GOLDEN: dict[str, tuple[tuple[str, ...], Task, Placement, dict[str, str]]] = {
    "launch-without-gpu": (("docker",), task("t1", "node1", "assigning"), Placement("node1"), {}),
    "launch-one-gpu": (
        ("docker",),
        task("t2", state="assigning", spec=spec("sh", "-c", "echo 'it''s' \"$HOME\"\nexit 3")),
        Placement("node1", (0,), UUIDS[:1]),
        {},
    ),
    "launch-sudo-secrets-everything": (
        ("sudo", "docker"),
        task(
            "t3",
            "node1:1::0,1",
            "assigning",
            spec=spec(
                "python",
                "train.py",
                "--lr",
                "0.1",
                name="run-1",
                cores=7.5,
                memory=16 * 2**30,
                shm_size=2**30,
                env={"MODE": "fast & loose"},
                secret_env=("HF_TOKEN", "WANDB_KEY"),
                mounts=(Mount("/data/set 1", "/data", read_only=True), Mount("/out,put", '/o"ut')),
                volumes=(Volume("data", "/v"), Volume("base", "/b", read_only=True)),
                workdir="/srv",
                user="1000:1000",
                network="host",
                stop_grace=30.0,
                labels={"team": "vision"},
            ),
        ),
        Placement("node1", (0, 1), UUIDS, "16-31", 1),
        {"WANDB_KEY": "k3y", "HF_TOKEN": "it's a secret"},
    ),
    "launch-rootless-privileged": (
        ("docker", "--host", "unix:///run/user/1000/docker.sock"),
        task("t4", "node1", "assigning", spec=spec(privileged=True, stop_grace=0)),
        Placement("node1"),
        {},
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_launch_script_is_the_one_on_record(name: str) -> None:
    words, of, at, secrets = GOLDEN[name]
    text = docker(*words).launches([Launch(of, at, secrets=secrets)]).text(masked=True)
    file = DATA / f"{name}.sh"
    if os.environ.get("AGENTLESS_WRITE"):
        file.write_text(text)
    assert text == file.read_text()


def test_whether_it_can_hand_out_gpus_is_asked_by_the_programs_that_it_needs_for_that() -> None:
    script = docker().facts()[0].script
    assert "  command -v nvidia-container-runtime-hook\n" in script
    assert "nvidia-ctk" not in script  # alone it gives no GPU to anybody


ATTACHED = {
    "shell-on-a-terminal": Attachment(InputKind.TERMINAL, Size(80, 24), {"TERM": "xterm"}),
    "shell-without-a-terminal": Attachment(InputKind.LINES),
    "shell-on-a-pipe": Attachment(InputKind.PIPE, None, {"A": "it's"}),
}


@pytest.mark.parametrize(("name", "attached"), ATTACHED.items(), ids=ATTACHED)
def test_the_script_of_a_shell_is_the_one_on_record(name: str, attached: Attachment) -> None:
    commands = docker("sudo", "docker").terminal
    text = commands.shell("c1", ("echo", "it's"), "m4rk", attached).script
    file = DATA / f"{name}.sh"
    if os.environ.get("AGENTLESS_WRITE"):
        file.write_text(text)
    assert text == file.read_text()


def launched(
    wanted: Any = None, at: Placement | None = None, *words: str, secrets: dict[str, str] | None = None
) -> str:
    at = at or placement()
    of = task("t1", state="assigning", spec=wanted or spec())
    return docker(*words).launches([Launch(of, at, secrets=secrets or {})]).script


def test_several_gpus_are_named_by_uuid_in_literal_double_quotes() -> None:
    script = launched(at=Placement("node1", (0, 1), UUIDS))
    assert f""" --gpus '"device={UUIDS[0]},{UUIDS[1]}"' """ in script
    assert "CUDA_VISIBLE_DEVICES" not in script


def test_a_task_without_gpus_says_nothing_of_gpus_but_that_it_has_none() -> None:
    script = launched(at=Placement("node1"))
    assert "--gpus" not in script
    assert " --env NVIDIA_VISIBLE_DEVICES=void " in script


def test_what_was_created_just_now_is_started_without_asking_for_all_containers() -> None:
    of, at, created = task("t1", state="assigning"), placement(), "c" * 64
    first, full = (docker().launches([Launch(of, at, created=each)]).script for each in (created, ""))
    assert re.search(rf"^marked='.*\|{created}\|agentless-t1\|Created\|", first, re.MULTILINE)
    assert first.count(" ps --no-trunc ") < full.count(" ps --no-trunc ")
    assert 'start "$unstarted" again &' in first  # it may have been started since, and have ended
    both = docker().launches([Launch(of, at, created=created), Launch(replace(of, id="t2"), at)]).script
    assert both.count(" ps --no-trunc ") == full.count(" ps --no-trunc ")  # of the second one it has to ask


def test_a_container_stays_after_its_end_and_is_never_pulled_under_the_lock() -> None:
    script = launched()
    assert "--rm" not in script
    assert " create --pull never " in script


def test_the_task_knows_itself_by_its_environment() -> None:
    script = launched(at=Placement("node1", (0, 1), UUIDS))
    for variable in ("AGENTLESS_TASK_ID=t1", "AGENTLESS_NODE=node1", "AGENTLESS_GPUS=0,1"):
        assert f" --env {variable} " in script


def test_a_secret_is_in_the_script_by_its_name_only() -> None:
    of = task(state="assigning", spec=spec(secret_env=("TOKEN",)))
    command = docker().launches([Launch(of, placement(), secrets={"TOKEN": "s3cret"})])
    assert " --env TOKEN " in command.script
    assert "s3cret" not in command.script
    assert "s3cret" not in command.text(masked=True)
    assert command.text().startswith("export TOKEN=s3cret\n")


@pytest.mark.parametrize("sudo", ["sudo", "/usr/bin/sudo"])
def test_sudo_lets_the_secrets_through_and_nothing_else(sudo: str) -> None:
    values = {"B": "2", "A": "1"}
    script = launched(spec(secret_env=("B", "A")), None, sudo, "-n", "docker", secrets=values)
    assert f"{sudo} --preserve-env=A,B -n docker create " in script
    assert f"{sudo} -n docker ps " in script
    assert "--preserve-env" not in launched(None, None, sudo, "docker")


def test_a_mount_is_one_record_whatever_its_path_is() -> None:
    mounts = (Mount("/a b", "/c", read_only=True), Mount("/a,b", '/c"d'), Mount("/a\nb", "/c"))
    script = launched(spec(mounts=mounts))
    for record in ("type=bind,source=/a b,target=/c,readonly", 'type=bind,"source=/a,b","target=/c""d"'):
        assert f" --mount {shlex.quote(record)}" in script
    assert " --mount 'type=bind,\"source=/a\nb\",target=/c'" in script


# ------------------------------------------------------------------------------------------------- the launch's answer


def answer(exit_code: int, out: str = "", err: str = "") -> str:
    waiting = task("t1", "node1::0,1", "assigning")
    return docker().parse_launch(waiting, Result(exit_code, out.encode(), err.encode()))


def test_the_answer_to_a_launch_is_the_containers_id() -> None:
    assert answer(0, f"{CID}\n") == CID
    assert answer(0, f"some warning\n{CID}\n", "WARNING: no swap\n") == CID


@pytest.mark.parametrize("out", ["", "ok\n", CID[:12]])
def test_an_answer_without_an_id_is_no_answer(out: str) -> None:
    with pytest.raises(NoAnswer, match="node1 did not report the container it started"):
        answer(0, out)


def test_holders_are_named_by_index_task_and_owner() -> None:
    with pytest.raises(Refused) as caught:
        answer(75, "noise\nheld|GPU-node1-1|t9|ann@there\nheld|GPU-node1-0|t8|b|c\n")
    assert str(caught.value) == "node1::0,1: GPU 1 is held by task t9 of ann@there; GPU 0 is held by task t8 of b|c"


def test_a_lock_that_was_not_free_in_time_is_a_refusal() -> None:
    with pytest.raises(Refused, match="other launches locked this node for 20 s; retry"):
        answer(76)


@pytest.mark.parametrize("exit_code", [78, 129, 137, 143, 255])
def test_a_launch_that_was_interrupted_may_have_started(exit_code: int) -> None:
    with pytest.raises(NoAnswer, match="may have started task t1"):
        answer(exit_code, CID)


@pytest.mark.parametrize(
    "complaint",
    [
        "docker: Error response from daemon: No such image: busybox:latest.\nSee 'docker run --help'.",
        "docker: Error response from daemon: No such image: busybox:latest\n\nRun 'docker run --help' for more …",
        "Unable to find image 'busybox:latest' locally",
    ],
)
def test_a_missing_image_can_be_told_from_other_failures(complaint: str) -> None:
    with pytest.raises(ImageMissing, match="node1 does not have image busybox"):
        answer(125, err=complaint)


@pytest.mark.parametrize("exit_code", [1, 125, 126, 127])
def test_any_other_failure_is_the_engines_complaint(exit_code: int) -> None:
    with pytest.raises(RuntimeFailed) as caught:
        answer(exit_code, err="docker: Error response from daemon: Minimum memory limit allowed is 6MB.")
    assert str(caught.value) == "node1: Minimum memory limit allowed is 6MB"
    assert not isinstance(caught.value, ImageMissing)


@pytest.mark.parametrize(
    ("exit_code", "complaint", "fault"),
    [
        (
            125,
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "gpus",
        ),
        (125, "docker: Error response from daemon: mkdir /var/lib/docker/x: no space left on device.", "start"),
        (77, "who has what could not be listed, whatever was said of it", "engine"),
    ],
)
def test_a_failure_for_a_reason_of_the_node_is_told_from_those_of_the_task(
    exit_code: int, complaint: str, fault: str
) -> None:
    with pytest.raises(NodeBroken, match=r"node1") as caught:
        answer(exit_code, err=complaint)
    assert (caught.value.fault, caught.value.exit_code) == (fault, 3)


# ------------------------------------------------------------------------------------------------------ other commands


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (docker().signal("agentless-t1", "TERM"), "docker kill --signal TERM agentless-t1\n"),
        (docker("sudo", "docker").pause("agentless-t1"), "sudo docker pause agentless-t1\n"),
        (docker().resume("agentless-t1"), "docker unpause agentless-t1\n"),
        (docker().remove("agentless-t1"), "docker rm --volumes agentless-t1\n"),
        (docker().remove("agentless-t1", force=True), "docker rm --force --volumes agentless-t1\n"),
        (docker().images.pull("a b"), "docker pull --quiet 'a b'\n"),
        (docker().logs("c", LogQuery()), "docker logs c\n"),
        (
            docker().logs("c", LogQuery(follow=True, tail=0, since=NOW + 0.5, timestamps=True)),
            "docker logs --follow --tail 0 --since 1800000000.500000000 --timestamps c\n",
        ),
    ],
    ids=lambda value: value.split()[1] if isinstance(value, str) and len(value.split()) > 1 else "",
)
def test_each_command_is_one_line(command: Any, script: str) -> None:
    assert command.script == script


def test_a_command_that_worked_is_no_error_and_another_is_its_complaint() -> None:
    docker().check(Result(0, b"", b"some warning"))
    with pytest.raises(RuntimeFailed, match=r"^node1: Container abc is not paused$"):
        docker().check(Result(1, b"", b"Error response from daemon: Container abc is not paused\n"))
