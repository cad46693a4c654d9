"""Settings of a node for its tasks: what the inventory means, and what of it a launch has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentless.inventory.inventory import load
from agentless.model.containers.launch import Launch
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.spec import Mount, TaskSpec, Volume
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.tasks.settings import folders, with_settings
from tests.engines import docker_engine, systemd_engine
from tests.pure.build import SIGNER, placement, spec, task

NODE = NodeConfig(
    "node1",
    "h",
    mounts=(Mount("/data", "/data", read_only=True), Mount("/m", "/models")),
    env={"HF_HOME": "/shared/hf", "A": "the inventory's"},
    privileged=True,
    network="host",
    shm_size=8 << 30,
)


def read(folder: Path, defaults: str, node: str) -> NodeConfig:
    path = folder / "inventory.yaml"
    path.write_text(f"version: 1\ndefaults: {defaults}\nnodes: {{node1: {node}}}\n")
    return load(path).nodes["node1"]


def launched(node: NodeConfig, of: TaskSpec) -> str:
    asked = Launch(task("t1", state="assigning", spec=of), placement())
    engine: Any = systemd_engine if of.on_node_itself else docker_engine
    script: str = engine(node, Renderer([template_dir()]), SIGNER).launches([asked]).script
    return script


# ---------------------------------------------------------------------------------------------------- the inventory


def test_every_setting_arrives_in_its_type(tmp_path: Path) -> None:
    text = (
        "{host: h, mounts: ['/data:/data:ro', '/m:/models'], env: {HF_HOME: /shared/hf, A: \"the inventory's\"}, "
        "privileged: true, network: host, shm_size: 8GiB}"
    )
    assert read(tmp_path, "{}", text) == NODE


def test_mounts_and_variables_of_a_node_are_added_and_win_over_the_defaults(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "{mounts: ['/data:/data:ro', '/m:/models'], env: {A: '1', B: '2'}, network: host, shm_size: 1GiB}",
        "{host: h, mounts: ['/nvme:/data/'], env: {B: '3'}, network: none}",
    )
    assert [str(mount) for mount in found.mounts] == ["/nvme:/data/", "/m:/models"]
    assert (found.env, found.network, found.shm_size) == ({"A": "1", "B": "3"}, "none", 1 << 30)


def test_null_on_a_node_takes_a_setting_of_the_defaults_back(tmp_path: Path) -> None:
    usual = (
        "{mounts: ['/data:/data'], env: {A: '1'}, privileged: true, network: host, shm_size: 1GiB, cuda: {path: /c}}"
    )
    none = "{host: h, mounts: null, env: null, privileged: null, network: null, shm_size: null, cuda: null}"
    assert read(tmp_path, usual, none) == NodeConfig("node1", "h")
    assert not read(tmp_path, usual, "{host: h, privileged: false}").privileged


def test_the_cuda_of_a_node_is_a_folder(tmp_path: Path) -> None:
    assert read(tmp_path, "{cuda: {path: /opt/cuda}}", "{host: h}").cuda == "/opt/cuda"
    assert read(tmp_path, "{cuda: {path: /opt/cuda}}", "{host: h, cuda: {path: /c}}").cuda == "/c"


# -------------------------------------------------------------------------------------------------------- the rule


def test_what_a_task_requests_itself_wins() -> None:
    own = spec(
        mounts=(Mount("/mine", "/data/"),),
        volumes=(Volume("models", "/models"),),
        env={"A": "mine"},
        network="none",
        shm_size=1 << 30,
    )
    found = with_settings(own, NODE)
    assert found.mounts == own.mounts
    assert (found.env, found.network, found.shm_size) == ({"HF_HOME": "/shared/hf", "A": "mine"}, "none", 1 << 30)


def test_a_secret_is_not_covered_by_a_variable_of_the_node() -> None:
    assert "A" not in with_settings(spec(secret_env=("A",)), NODE).env


def test_without_settings_a_spec_stays_as_it_is() -> None:
    own = spec(mounts=(Mount("/mine", "/data"),), env={"A": "1"}, privileged=True)
    assert with_settings(own, NodeConfig("node1", "h")) == own


def test_without_a_container_only_variables_are_added() -> None:
    own = spec(container="NULL", image=None, env={"A": "mine"})
    assert with_settings(own, NODE) == spec(container="NULL", image=None, env={"HF_HOME": "/shared/hf", "A": "mine"})


@pytest.mark.parametrize(
    ("mounts", "local_temp", "found"),
    [
        ((), None, ("/tmp", "")),
        ((), "/scratch", ("/local_temp", "")),
        ((Mount("/nfs", "/shared"),), None, ("/tmp", "/shared")),
        ((Mount("/mine", "/local_temp/"),), None, ("/local_temp", "")),
    ],
)
def test_a_task_is_told_where_its_folders_are(
    mounts: tuple[Mount, ...], local_temp: str | None, found: tuple[str, str]
) -> None:
    node = NodeConfig("node1", "h", local_temp=local_temp, shared_dir="/nfs")
    assert tuple(folders(with_settings(spec(mounts=mounts), node), node).values()) == found


def test_without_a_container_the_folders_are_those_of_the_node() -> None:
    node = NodeConfig("node1", "h", local_temp="/scratch", shared_dir="/nfs")
    assert folders(spec(container="NULL", image=None), node) == {
        "AGENTLESS_LOCAL_TEMP": "/scratch",
        "AGENTLESS_SHARED": "/nfs",
    }


# ------------------------------------------------------------------------------------------------------ the launch


def test_a_launch_has_the_settings_of_its_node() -> None:
    script = launched(NODE, spec(env={"A": "mine"}))
    for words in (
        "--env HF_HOME=/shared/hf",
        "--env A=mine",
        "--shm-size 8589934592",
        "--mount type=bind,source=/data,target=/data,readonly",
        "--mount type=bind,source=/m,target=/models",
        "--network host",
        "--privileged",
    ):
        assert f" {words} " in script
    assert "the inventory's" not in script


def test_the_label_has_what_was_requested_so_that_a_retry_elsewhere_gets_the_settings_of_that_node() -> None:
    labels = [
        re.findall(r"--label '?(agentless\.spec=.*?) --label", launched(node, spec(env={"A": "mine"})))
        for node in (NODE, NodeConfig("node1", "h"))
    ]
    assert labels[0] == labels[1] != []


def test_no_variable_of_the_inventory_gives_a_gpu() -> None:
    sly = NodeConfig("node1", "h", env={"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "9"})
    assert "=all" not in launched(sly, spec())
    assert "CUDA_VISIBLE_DEVICES=9" not in launched(sly, spec(container="NULL", image=None))
