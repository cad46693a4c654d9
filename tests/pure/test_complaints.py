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

from agentless.model.node import NodeConfig
from agentless.runtimes._complaints import _KNOWN, explain

NODE = NodeConfig("node1", "h", user="ann")
RECORDED = json.loads((Path(__file__).parent / "data" / "docker" / "complaints.json").read_text())


def pairs(kind: str) -> list[tuple[str, str]]:
    return [(said, sentence) for sentence, saids in RECORDED[kind].items() for said in saids]


@pytest.mark.parametrize(("said", "sentence"), pairs("known"))
def test_a_known_complaint_becomes_its_sentence_with_the_fix(said: str, sentence: str) -> None:
    assert explain(said, NODE) == sentence


def test_every_sentence_has_a_complaint_on_record() -> None:
    assert len(RECORDED["known"]) >= len(_KNOWN)


@pytest.mark.parametrize(("said", "line"), pairs("repeated"))
def test_an_unknown_complaint_is_repeated_on_one_line_without_its_preamble(said: str, line: str) -> None:
    assert explain(said, NODE) == line


@given(st.text())
def test_any_complaint_is_one_line_of_bounded_length(said: str) -> None:
    line = explain(said, NODE)
    assert 0 < len(line) <= 300
    assert len(line.splitlines()) == 1


def test_a_user_is_not_invented() -> None:
    nameless = NodeConfig("node1", "h")
    assert explain("permission denied: docker.sock", nameless).startswith("the user may not use Docker on node1")


def test_a_socket_that_the_inventory_names_is_named() -> None:
    rootless = NodeConfig("node1", "h", docker=("docker", "--host", "unix:///run/user/1000/docker.sock"))
    sentence = explain("Cannot connect to the Docker daemon", rootless)
    assert "listens elsewhere than unix:///run/user/1000/docker.sock;" in sentence
