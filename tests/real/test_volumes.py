"""Volumes on real engines, and the folders of a node that every task sees."""

from __future__ import annotations

import subprocess

import pytest

from tests.real.cli import Cli, inventory_of, until


@pytest.fixture(autouse=True)
def _no_volume_is_left(lab):
    yield
    for node in lab.nodes.values():
        node.sh("docker ps -aq | xargs -r docker rm -f; docker volume ls -q | xargs -r docker volume rm")


def volumes(agentless):
    return {(each["node"], each["name"]): each for each in agentless.json("volume", "list")}


def test_a_volume_outlives_its_tasks_and_later_ones_go_where_it_is(agentless):
    made = agentless.submit("node2", "--volume", "data:/data", "--", "sh", "-c", "head -c 300000 /dev/zero >/data/x")
    agentless("wait", made)
    # Any node would do, and the policy would take node1.
    reader = agentless.submit("--gpus", "0", "--volume", "data:/in:ro", "--", "sh", "-c", "touch /in/y; sleep 3600")
    task = agentless.task(reader)
    assert task["node"] == "node2"
    assert "data:/in:ro" in agentless("show", reader).out
    volume = volumes(agentless)["node2", "data"]
    assert (volume["owner"], volume["size_bytes"]) == (task["owner"], 300_000)
    assert sorted(volume["tasks"]) == sorted([made, reader])
    assert agentless("volume", "list").out.splitlines()[1].split()[:3] == ["node2", "data", "293"]
    assert f"task {reader} uses volume data on node2" in agentless("volume", "rm", "-f", "data", code=3).err
    agentless("kill", reader)
    assert "Read-only file system" in agentless("logs", reader, "--stderr").err
    assert "agentless rm" in agentless("volume", "rm", "-f", "data", code=3).err
    agentless("rm", made, reader)
    assert agentless("volume", "rm", "data", code=2).err.endswith("To remove the volume with all its files: --force\n")
    agentless("volume", "rm", "-f", "data")
    assert volumes(agentless) == {}


@pytest.mark.slow
def test_a_volume_is_made_where_it_is_wanted_and_once(agentless):
    agentless("volume", "create", "scratch", "--on", "node2")
    assert "already has a volume scratch" in agentless("volume", "create", "scratch", "--on", "node2", code=3).err
    assert volumes(agentless)["node2", "scratch"]["size_bytes"] == 0
    agentless("volume", "create", "other", "--on", "node1")
    both = ["--volume", "scratch:/a", "--volume", "other:/b", "--", "true"]
    refused = agentless("submit", "--gpus", "0", *both, code=3).err
    assert "no matching node has all volumes of the task: scratch is on node2; other is on node1" in refused
    agentless("submit", "node1", "--wait", *both)
    agentless("volume", "rm", "-f", "scratch", code=3)  # node1 has one, too, by now, which a container is part of
    agentless("volume", "rm", "-f", "scratch", "--on", "node2")
    assert "no volume 'nothing' on node1" in agentless("volume", "rm", "-f", "nothing", "--on", "node1", code=2).err
    assert set(volumes(agentless)) == {("node1", "scratch"), ("node1", "other")}


@pytest.mark.slow
def test_a_volume_is_not_made_a_second_time_while_the_node_that_has_it_is_away(agentless, lab):
    submit = ("submit", "--gpus", "0", "--volume", "data:/data")
    agentless("submit", "node2", "--wait", "--volume", "data:/data", "--", "true")
    lab.nodes["node2"].stop_sshd()
    try:
        until(lambda: agentless.node("node2")["state"] == "offline")
        refused = agentless(*submit, "--", "true", code=4).err
        assert "it has volume data; wait for the node, or specify another node" in refused
        assert set(volumes(agentless)) == set()
        agentless("submit", "node1", "--wait", "--volume", "data:/data", "--", "true")
        assert set(volumes(agentless)) == {("node1", "data")}
    finally:
        lab.nodes["node2"].start_sshd()
    until(lambda: set(volumes(agentless)) == {("node1", "data"), ("node2", "data")})


def test_a_strangers_volume_is_neither_used_nor_shown_nor_removed(agentless, lab):
    lab.nodes["node1"].sh("docker volume create theirs")
    used = agentless("submit", "node1", "--volume", "theirs:/x", "--", "true", code=1).err
    assert "volume theirs already exists and was not created by agentless" in used
    assert "was not created by agentless" in agentless("volume", "create", "theirs", "--on", "node1", code=3).err
    assert volumes(agentless) == {}
    agentless("volume", "rm", "-f", "theirs", "--on", "node1", code=2)
    assert "theirs" in lab.nodes["node1"].sh("docker volume ls -q").stdout


@pytest.mark.slow
def test_folders_of_the_node_are_seen_by_every_task(lab):
    folders = {name: lab.nodes[name].dir / "scratch" for name in lab.nodes}
    shared = lab.root / "shared"
    shared.mkdir(exist_ok=True)
    folders["node1"].mkdir(exist_ok=True)
    keys = {name: f"local_temp: {folder}" for name, folder in folders.items()}
    cli = Cli(lab, "folders", inventory_of(lab, f"image: busybox, shared_dir: {shared}", **keys)).settle()
    try:
        script = "echo mine >/local_temp/x; echo ours >/shared/y"
        cli("submit", "node1", "--wait", "--", "sh", "-c", script)
        assert (folders["node1"] / "x").read_text() == "mine\n"
        assert (shared / "y").read_text() == "ours\n"
        missing = cli("submit", "node2", "--", "true", code=1).err
        assert f"cannot mount {folders['node2']}: not found on node2" in missing
        assert not folders["node2"].exists()
        cli("submit", "node2", "--wait", "--volume", "own:/local_temp", "--", "touch", "/local_temp/x")
    finally:
        cli.close()
        subprocess.run(["rm", "-rf", str(shared), *map(str, folders.values())], check=True)
