"""What becomes of VPS when the controller or the engine is killed in the middle."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

from tests.real.cli import Cli, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_vps_left")]


def running(node):
    """The ids of the containers that run."""
    return node.sh("docker ps --quiet").stdout.split()


@pytest.mark.parametrize("verb", ["restore", "resize", "restart", "stop", "start"])
@pytest.mark.parametrize("moment", [0.2, 0.5, 0.9, 1.4, 2.0])
def test_a_controller_killed_at_any_moment_of_a_change_leaves_one_box_with_its_files(agentless, node, verb, moment):
    """It runs at most once, it has its name, and it can be started; its files are there."""
    agentless.json("vps", "create", "box", "node1::0")
    agentless("vps", "ssh", "box", "--", "echo kept >/file")
    made = agentless.json("vps", "snapshot", "box")["snapshot"]
    words = {
        "restore": (made, "--yes"),
        "resize": ("node1::0,1", "--yes"),
        "restart": ("--grace", "0"),
        "stop": ("--grace", "0"),
    }
    if verb == "start":
        agentless("vps", "stop", "box", "--grace", "0")
    change = agentless.start("vps", verb, "box", *words.get(verb, ()))
    time.sleep(moment)  # the fault may come at any moment: each is right
    agentless.kill_controller()
    change.communicate(timeout=60)
    until(lambda: agentless.get("/v1/vps/box")["state"] in ("running", "stopped"))
    assert len(running(node)) <= 1
    if agentless.get("/v1/vps/box")["state"] == "stopped":
        agentless("vps", "start", "box")
    assert len(running(node)) == 1
    assert agentless("vps", "ssh", "box", "--", "cat /file; hostname").out == "kept\nbox\n"


def test_three_come_back_with_their_node(agentless, node):
    for name, target in (("one", "node1::0"), ("two", "node1::1"), ("three", "node1")):
        agentless.json("vps", "create", name, target)
        agentless("vps", "ssh", name, "--", "echo kept >/file")
    before = {each["started_at"] for each in agentless.get("/v1/vps")}
    node.kill_docker()
    node.start_docker()
    until(lambda: before.isdisjoint(each["started_at"] for each in agentless.get("/v1/vps")), 120)
    until(lambda: [each["state"] for each in agentless.get("/v1/vps")] == ["running"] * 3, 120)
    for name in ("one", "two", "three"):
        assert agentless("vps", "ssh", name, "--", "cat /file").out == "kept\n"


@pytest.fixture
def cramped(lab):
    """A person whose node has an engine on a disk of 64 MB."""
    node = lab.add_node("cramped")
    disk = node.dir / "docker"
    node.stop_docker()
    shutil.rmtree(disk)
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
    try:
        node.start_docker()
        node.sh(f"docker load --input {lab.root}/image.tar").check_returncode()
        nodes = f"nodes: {{cramped: {{host: {node.host}}}}}"
        yield Cli(lab, "cramped", f"version: 1\ndefaults: {{identity_file: {lab.identity}, image: busybox}}\n{nodes}\n")
    finally:
        lab.retire("cramped")
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_snapshot_for_which_the_disk_has_no_room_is_refused_and_the_vps_goes_on(cramped):
    cramped.json("vps", "create", "box", "cramped")
    cramped("vps", "ssh", "box", "--", "head -c 40m /dev/urandom >/large; md5sum </large >/sum")
    failed = cramped("vps", "snapshot", "box", code=1)
    assert "the disk of cramped is full" in failed.err
    assert cramped.json("vps", "snapshots", "box") == []
    assert cramped("vps", "ssh", "box", "--", "md5sum </large | cmp - /sum && rm /large").code == 0
    assert cramped.json("vps", "snapshot", "box")["snapshot"] == "box:1"
