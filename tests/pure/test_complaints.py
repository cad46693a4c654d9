"""What docker, sudo and shells complain of, as a sentence with the fix.

`data/docker/complaints.json` has for each sentence what it is said for: read off docker 20.10.24 and 28.2.2, dash, bash
and busybox; those of docker 29, sudo, sudo-rs and NVIDIA's hook are as their sources and bug reports have them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.engines.docker.complaints import without_words_of
from agentless.model.nodes.node import NodeConfig, with_node
from agentless.model.tasks.spec import TaskSpec
from tests.engines import blame, explain

NODE = NodeConfig("node1", "h", user="ann")
RECORDED = json.loads((Path(__file__).parent / "data" / "docker" / "complaints.json").read_text())


def pairs(kind: str) -> list[tuple[str, str]]:
    return [(said, sentence) for sentence, saids in RECORDED[kind].items() for said in saids]


@pytest.mark.parametrize(("said", "sentence"), pairs("known"))
def test_a_known_complaint_becomes_its_sentence_with_the_fix(said: str, sentence: str) -> None:
    assert explain(said, NODE) == sentence


@pytest.mark.parametrize("sentence", RECORDED["known"])
def test_a_message_names_its_node_once(sentence: str) -> None:
    assert with_node("node1", sentence).startswith("node1: ") == ("node1" not in sentence)


def test_another_node_or_a_part_of_a_name_does_not_name_the_node() -> None:
    assert with_node("node1", "the disk of node11 is full") == "node1: the disk of node11 is full"
    assert with_node("node1", "/on/node1 is not there") == "node1: /on/node1 is not there"


@pytest.mark.parametrize(("said", "line"), pairs("repeated"))
def test_an_unknown_complaint_is_repeated_on_one_line_without_its_preamble(said: str, line: str) -> None:
    assert explain(said, NODE) == line


@given(st.text())
def test_any_complaint_is_one_line_of_bounded_length(said: str) -> None:
    line = explain(said, NODE)
    assert 0 < len(line) <= 300
    assert len(line.splitlines()) == 1


OF_ITS_ENGINE = """
Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?
sudo: a password is required
docker: permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock
""".strip().splitlines()
OF_THE_NODE = """
docker: Error response from daemon: mkdir /var/lib/docker/overlay2/1: no space left on device.
sh: 6: flock: not found
exec: "runc": executable file not found in $PATH: unknown.
failed to create endpoint agentless-1 on network bridge: operation not supported
""".strip().splitlines()
OF_ITS_GPUS = """
could not select device driver "" with capabilities: [[gpu]].
stderr: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown
stderr: nvidia-container-cli: device error: GPU-1: unknown device: unknown
error running hook #0: fork/exec /usr/bin/nvidia-container-runtime-hook: no such file or directory: unknown
""".strip().splitlines()
OF_THE_TASK = """
docker: Error response from daemon: network nosuchnet not found.
docker: Error response from daemon: failed to set up container networking: network nosuchnet not found
Minimum memory limit allowed is 6MB
unable to start container process: exec: "runc": executable file not found in $PATH: unknown
bind source path does not exist: /nope/x.
unable to find user nobody2: no matching entries in passwd file.
stderr: nvidia-container-cli: mount error: file creation failed: /merged/usr/bin/nvidia-smi: file exists: unknown
failed to populate volume: write /var/lib/docker/volumes/data/_data/x: no space left on device
container init was OOM-killed (memory limit too low?)
something that nobody has heard of yet
""".strip().splitlines()


OF_BOTH = """
stderr: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your driver
docker: Error response from daemon: Conflict. The container name "/agentless-t1-2" is already in use by container "e"
""".strip().splitlines()


@pytest.mark.parametrize(
    ("said", "reason"),
    [(said, "engine") for said in OF_ITS_ENGINE]
    + [(said, "start") for said in OF_THE_NODE]
    + [(said, "gpus") for said in OF_ITS_GPUS]
    + [(said, "fit") for said in OF_BOTH]
    + [(said, "task") for said in OF_THE_TASK],
)
def test_a_failed_launch_is_blamed_on_the_node_only_where_that_is_certain(said: str, reason: str) -> None:
    assert blame(said) == reason


@given(st.text())
def test_what_is_not_known_is_blamed_on_the_task(said: str) -> None:
    assert blame(said) == "task"


def test_a_user_is_not_invented() -> None:
    nameless = NodeConfig("node1", "h")
    assert explain("permission denied: docker.sock", nameless).startswith(
        "the user has no permission to use Docker on node1"
    )


def test_a_socket_that_the_inventory_names_is_named() -> None:
    rootless = NodeConfig("node1", "h", docker=("docker", "--host", "unix:///run/user/1000/docker.sock"))
    sentence = explain("Cannot connect to the Docker daemon", rootless)
    assert "listens elsewhere than unix:///run/user/1000/docker.sock;" in sentence


@pytest.mark.parametrize("words", ["Cannot connect to the Docker daemon", "could not select device driver for nvidia"])
def test_the_words_of_a_task_do_not_break_a_node(words: str) -> None:
    """It would go on to the next node, and break that one too."""
    said = "docker: Error response from daemon: OCI runtime create failed: exec: "
    of = TaskSpec((words,), image="busybox")
    for quoted in (f'"{words}"', f'\\"{words}\\"'):
        assert blame(without_words_of(of, f"{said}{quoted}: executable file not found in $PATH: unknown.")) == "task"
    assert blame(without_words_of(of, f"invalid reference: {words}")) == "task"
    assert blame(without_words_of(TaskSpec(("true",), image="busybox"), f"docker: {words}")) != "task"
