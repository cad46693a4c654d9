"""What engines, hooks and NVIDIA's tools print when they cannot give a GPU to a container, and what becomes of it.

`data/complaints/gpus.json` has each text under the public report that it is from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentless.engines.docker import complaints
from agentless.model.nodes.node import NodeConfig
from agentless.rules.tasks.known_complaints import Known, find
from tests.engines import blame as blame_of
from tests.engines import explain, of_devices

DATA = Path(__file__).parent / "data"
RECORDED: list[dict[str, Any]] = json.loads((DATA / "complaints" / "gpus.json").read_text())
ENGINES = {
    "docker": NodeConfig("node1", "h", user="ann"),
    "podman": NodeConfig("node1", "h", user="ann", docker=("podman",)),
}
SAID = [
    pytest.param(each["engine"], said, each["sentence"], each["blame"], id=source)
    for each in RECORDED
    for source, said in each["said"].items()
]


@pytest.mark.parametrize(("engine", "said", "sentence", "blame"), SAID)
def test_a_gpu_failure_is_a_sentence_with_the_fix(engine: str, said: str, sentence: str, blame: str) -> None:
    assert explain(said, ENGINES[engine]) == sentence


@pytest.mark.parametrize(("engine", "said", "sentence", "blame"), SAID)
def test_a_gpu_failure_is_blamed_on_what_has_to_change(engine: str, said: str, sentence: str, blame: str) -> None:
    assert blame_of(said, ENGINES[engine]) == blame


KNOWN = (*complaints._CALLING, *of_devices(ENGINES["docker"]), *complaints._LAUNCHING)


def _all_said() -> list[str]:
    known = json.loads((DATA / "docker" / "complaints.json").read_text())["known"]
    return [said for saids in known.values() for said in saids] + [
        s for each in RECORDED for s in each["said"].values()
    ]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.sentence[:40])
def test_every_sentence_is_said_for_a_complaint_on_record(known: Known) -> None:
    assert any((found := find(said, KNOWN)) and found[0] is known for said in _all_said())


CHAIN = (
    "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime "
    "create failed: runc create failed: unable to start container process: error during container init: error running "
    "hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\n"
)


def test_the_cause_of_an_unknown_failure_is_what_is_left_of_a_long_chain() -> None:
    node = ENGINES["docker"]
    cause = "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1"
    assert explain(f"{CHAIN}{cause}: unknown.\nSee 'docker run --help'.", node) == cause


def test_the_cause_at_the_end_survives_where_the_chain_is_not_known() -> None:
    said = "docker: Error response from daemon: " + "some layer failed: " * 40 + "please update your driver: unknown."
    line = explain(said, ENGINES["docker"])
    assert line.startswith("some layer failed: ")
    assert line.endswith("please update your driver")
    assert len(line) <= 300


def test_a_warning_before_the_error_is_not_the_error() -> None:
    said = "WARNING: Memory limited without swap.\ndocker: Error response from daemon: cannot start a stopped process."
    assert explain(said, ENGINES["docker"]) == "cannot start a stopped process"


@pytest.mark.parametrize("program", ["nvidia-ctk", "/usr/bin/nvidia-container-cli"])
def test_a_task_that_wants_to_run_a_tool_of_nvidia_does_not_break_a_node(program: str) -> None:
    said = (
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc create "
        f'failed: unable to start container process: exec: "{program}": stat {program}: no such file or directory'
    )
    assert blame_of(said) == "task"
