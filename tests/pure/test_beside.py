"""Other engines on a node: the name that tells them what a task claims, and what is said of those that tell nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.engines import beside
from agentless.errors import Refused, Unseen
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.nodes.node import EngineFacts, NodeConfig
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.task import Placement
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import dialect_of, docker_engine
from tests.pure.build import SIGNER, placement, spec, task
from tests.pure.test_gpu_share import shares

NODE = NodeConfig("node1", "h", "bob")
UUIDS = tuple(f"GPU-{n:02x}c0ffee-5678-1234-9abc-0123456789ab" for n in range(40))


def group(owner: str = "ann@there", gpus: int = 1, parent: str = "/docker", **needs: Any) -> str:
    of = task("t1", state="assigning", owner=owner, spec=spec(needs=Needs(**needs)))
    return beside.group(of, Placement("node1", tuple(range(gpus)), UUIDS[:gpus]), parent)


def test_a_group_says_what_a_task_claims_and_nothing_of_the_task() -> None:
    assert group(gpus=2) == "/docker/agentless_claim....ann__there.00c0ffee.01c0ffee"
    assert group(exclusive=True, gpus=0) == "/docker/agentless_claim.1...ann__there"
    assert re.fullmatch(r"/docker/agentless_claim\.\.3\.[1-9]\d*\.ann__there\.00c0ffee", group(**shares(3)))


def test_a_slice_is_one_within_the_usual_one() -> None:
    assert group("ann@gpu-1", parent="system.slice") == "system-agentless_claim....ann__gpu_1.00c0ffee.slice"


def test_more_gpus_than_a_name_has_room_for_are_all_of_the_nodes() -> None:
    assert group(gpus=16).endswith(".0fc0ffee")
    assert group(gpus=40).endswith(".ann__there.all")


@given(st.text(), st.integers(0, 40), st.booleans(), st.sampled_from(["/docker", "system.slice", "user.slice"]))
def test_a_group_has_a_name_that_every_engine_takes(owner: str, gpus: int, exclusive: bool, parent: str) -> None:
    name = group(owner, gpus, parent, exclusive=exclusive).removeprefix("/docker/").removeprefix(parent[:-6] + "-")
    assert re.fullmatch(r"agentless_claim\.[A-Za-z0-9_.]*", name)
    assert len(name) <= 200


def parent(driver: str = "cgroupfs", *lines: str, docker: str = "docker", security: tuple[str, ...] = ()) -> str | None:
    answer = Result(0, "".join(f"{line}\n" for line in lines).encode(), b"")
    return beside.parent_of(NodeConfig("node1", "h", docker=tuple(docker.split())), answer, driver, list(security))


@pytest.mark.parametrize(
    ("driver", "security", "expected"),
    [
        ("cgroupfs", (), "/docker"),
        ("systemd", (), "system.slice"),
        ("systemd", ("name=seccomp,profile=default", "name=rootless"), "user.slice"),
        ("none", ("name=rootless",), None),
        ("", (), None),
    ],
)
def test_containers_are_put_below_the_engines_usual_group(driver: str, security: Any, expected: str | None) -> None:
    assert parent(driver, "host|", security=security) == expected


def test_an_engine_that_has_a_group_of_its_own_is_obeyed() -> None:
    assert parent("cgroupfs", "dockerd|0", "word|dockerd", "parent|/limited", "host|") == "/limited"
    assert parent("systemd", "dockerd|0", "word|--cgroup-parent=own.slice", "parent|not.slice", "host|") == "own.slice"


@pytest.mark.parametrize("odd", ["../..", "not-a-slice", "a b.slice", "x" * 200 + ".slice", "/a.slice"])
def test_below_an_odd_group_there_is_none(odd: str) -> None:
    assert parent("systemd", "dockerd|0", f"parent|{odd}", "host|") is None


TWO = ("dockerd|0", "word|-H", "word|fd://", "parent|/first", "dockerd|0", "word|--host=unix:///b", "parent|/second")


def test_of_several_engines_it_is_the_one_that_is_spoken_to() -> None:
    assert parent("cgroupfs", *TWO, "host|") == "/first"
    assert parent("cgroupfs", *TWO, "host|unix:///b") == "/second"
    assert parent("cgroupfs", *TWO, "host|", docker="sudo docker -H unix:///b") == "/second"
    assert parent("cgroupfs", "dockerd|1000", "parent|/alices", "host|") == "/docker"


def test_a_node_with_an_engine_that_may_not_be_asked_is_degraded_and_says_what_to_do() -> None:
    answer = Result(0, b"unseen|alice|4711\ndockerd|1000\nhost|\n", b"")
    assert beside.unseen(NODE, answer.out) == (
        "alice runs a Docker engine on node1 (process 4711), and bob cannot see which GPUs it uses; "
        "log in as root, or set accept_engines: [alice] in the inventory"
    )
    hidden = beside.unseen(NODE, "unseen||\n")
    assert hidden
    assert hidden.startswith("/proc on node1 hides the processes of other users (hidepid)")
    assert beside.unseen(NODE, "dockerd|0\n") is None


def test_a_launch_that_finds_such_an_engine_is_refused_in_the_same_words() -> None:
    engine = docker_engine(NODE, Renderer([template_dir()]), SIGNER)
    with pytest.raises(Unseen, match="alice runs a Docker engine on node1") as caught:
        engine.parse_launch(task("t1", state="assigning"), Result(81, b"unseen|alice|4711\n", b""))
    assert isinstance(caught.value, Refused)


def test_the_container_of_a_task_is_in_the_group_where_its_engine_can_make_one() -> None:
    engine = docker_engine(NODE, Renderer([template_dir()]), SIGNER)
    of, at = task("t1", state="assigning"), placement()
    script = engine.launches([Launch(of, at, engine=EngineFacts(cgroup_parent="/docker"))]).script
    assert " --cgroup-parent /docker/agentless_claim....me__here.node10 " in script
    assert "--cgroup-parent" not in engine.launches([Launch(of, at, engine=EngineFacts())]).script


@pytest.mark.parametrize(
    ("docker", "asker"),
    [
        (("docker",), ["docker"]),
        (("sudo", "-n", "/usr/bin/docker", "-H", "unix:///x"), ["sudo", "-n", "/usr/bin/docker"]),
        (("sudo", "podman"), ["docker"]),
        (("wrapper",), ["wrapper"]),
    ],
)
def test_another_engine_is_asked_by_the_nodes_own_command(docker: tuple[str, ...], asker: list[str]) -> None:
    node = NodeConfig("node1", "h", docker=docker)
    assert beside.asking(node, dialect_of(node))["asker"] == asker


@pytest.mark.parametrize(
    ("docker", "own", "own_env"),
    [
        (("docker",), [], True),
        (("docker", "-H", "unix:///x"), ["unix:///x"], False),
        (("sudo", "docker", "--host=unix:///x"), ["unix:///x"], False),
        (("sudo", "docker"), [], False),
        (("podman",), [], False),
    ],
)
def test_the_engine_that_was_asked_is_not_asked_again(docker: tuple[str, ...], own: list[str], own_env: bool) -> None:
    node = NodeConfig("node1", "h", docker=docker)
    asking = beside.asking(node, dialect_of(node))
    assert (asking["own"], asking["own_env"]) == (own, own_env)
