"""Snapshots of a VPS on real engines, and what is made of them: restore, other GPUs, another node."""

from __future__ import annotations

import pytest

from tests.real.cli import Cli, containers, inspect, until

pytestmark = pytest.mark.usefixtures("no_vps_left")


def create(agentless, name="box", target="node1::0", *words):
    return agentless.json("vps", "create", name, target, *words)


def ssh(agentless, name, *words):
    return agentless("vps", "ssh", name, "--", *words).out


def snapshots(agentless, name="box"):
    return [each["snapshot"] for each in agentless.json("vps", "snapshots", name)]


def test_restore_goes_back_to_a_snapshot_with_its_gpu_its_name_and_its_variables(agentless, node):
    before = create(agentless, "box", "node1::0", "--env", "COLOUR=blue")
    ssh(agentless, "box", "echo one >/file")
    made = agentless.json("vps", "snapshot", "box", "-m", "the first")
    assert (made["snapshot"], made["message"]) == ("box:1", "the first")
    ssh(agentless, "box", "echo two >/file")
    after = agentless.json("vps", "restore", "box", "1", "--yes")
    assert (after["state"], after["gpus"]) == ("running", [0])
    assert ssh(agentless, "box", "cat /file; hostname; echo $COLOUR") == "one\nbox\nblue\n"
    assert containers(node) == [f"agentless-{after['id']}"]
    assert before["id"] != after["id"]
    assert agentless.gpu("node1::0")["state"] == "allocated"


@pytest.mark.slow
def test_a_new_vps_begins_with_a_snapshot_and_so_does_a_task(agentless):
    create(agentless, "first")
    ssh(agentless, "first", "echo kept >/file")
    agentless("vps", "snapshot", "first")
    agentless("vps", "rm", "first", "--force", "--yes")
    assert snapshots(agentless, "first") == ["first:1"]
    create(agentless, "box", "node2", "--from", "first:1")
    assert ssh(agentless, "box", "cat /file; hostname") == "kept\nbox\n"
    assert agentless("run", "--node", "node1", "--container", "first.vps:1", "--", "cat", "/file").out == "kept\n"


def test_what_the_engine_makes_of_a_snapshot_is_no_task_and_claims_nothing(agentless, node):
    """The image of a container of ours must not have its labels, its GPUs or its first process."""
    create(agentless)
    image = agentless.json("vps", "snapshot", "box")["image"]
    agentless("vps", "stop", "box", "--grace", "1")
    assert node.sh(f"docker run --detach --name stranger {image} sleep 600").returncode == 0
    try:
        config = node.ask_docker("GET", "/containers/stranger/json")["Config"]
        assert (config["Entrypoint"], config["Cmd"]) == (None, ["sleep", "600"])
        assert not config["Labels"]["agentless.task"]
        assert node.gpu_uuids[0] not in str(config)
        agentless("vps", "start", "box")
        assert [each["name"] for each in agentless.json("ps")] == ["box"]
    finally:
        node.sh("docker rm --force stranger")


def test_stopping_takes_a_snapshot_and_keeps_the_last_ones(agentless):
    create(agentless, "third", "node1::0", "--snapshot-on-stop", "2")
    assert "on stop; the last 2 are kept" in agentless("vps", "show", "third").out
    agentless("vps", "snapshot", "third", "-m", "by hand")
    for _ in range(3):
        agentless("vps", "stop", "third", "--grace", "0")
        agentless("vps", "start", "third")
    assert snapshots(agentless, "third") == ["third:1", "third:3", "third:4"]


@pytest.mark.slow
def test_start_anywhere_takes_other_gpus_if_its_own_are_taken(agentless, node):
    create(agentless)
    ssh(agentless, "box", "echo kept >/file")
    agentless("vps", "stop", "box", "--grace", "0")
    task = agentless.submit("node1::0", "--", "sleep", "600")
    refused = agentless("vps", "start", "box", code=3).err
    assert task in refused
    assert "agentless vps start box --anywhere" in refused
    started = agentless.json("vps", "start", "box", "--anywhere")
    assert started["gpus"] != [0] or started["node"] != "node1"
    assert ssh(agentless, "box", "cat /file") == "kept\n"


@pytest.mark.slow
def test_a_vps_that_was_lost_with_its_node_starts_elsewhere_and_keeps_its_name_when_the_node_is_back(agentless, node):
    """What was there is stopped when the node answers again: there are never two, and the new files count."""
    old = create(agentless, "moved")
    agentless("vps", "snapshot", "moved")
    agentless("env", "push", "moved.vps", "node2")
    node.stop_sshd()
    until(lambda: agentless.get("/v1/nodes/node1")["state"] == "offline")
    assert "--anywhere" in agentless("vps", "start", "moved", code=4).err
    moved = agentless("vps", "start", "moved", "--anywhere")
    assert "keeps the earlier container" in moved.err
    assert agentless.get("/v1/vps/moved")["node"] == "node2"
    assert agentless("ssh", "moved", "--", "echo new >/file; hostname").out == "moved\n"
    agentless("vps", "stop", "moved", "--grace", "0")
    node.start_sshd()
    until(lambda: not inspect(node, old["id"])["State"]["Running"])
    until(lambda: agentless.task(old["id"])["ended_at"])
    assert agentless.get("/v1/vps/moved")["node"] == "node2"
    agentless("vps", "start", "moved")
    assert ssh(agentless, "moved", "cat /file") == "new\n"
    agentless("vps", "rm", "moved", "--force")
    assert containers(node) == []


@pytest.mark.slow
def test_restore_keeps_the_snapshot_that_it_needs(agentless):
    create(agentless, "kept", "node1::0", "--snapshot-on-stop", "1")
    ssh(agentless, "kept", "echo one >/file")
    agentless("vps", "restart", "kept", "--grace", "0")
    [only] = snapshots(agentless, "kept")
    ssh(agentless, "kept", "echo two >/file")
    agentless("vps", "restore", "kept", only, "--yes")
    assert ssh(agentless, "kept", "cat /file") == "one\n"


@pytest.mark.slow
def test_snapshots_of_others_and_of_an_earlier_one_of_this_name_stay(lab, agentless):
    create(agentless, "same", "node1::0", "--snapshot-on-stop", "1")
    agentless("vps", "stop", "same", "--grace", "0")
    mine = snapshots(agentless, "same")
    agentless("vps", "rm", "same", "--yes")
    other = Cli(lab, "other").settle()
    try:
        for who in (agentless, other):
            create(who, "same", "node1::0", "--snapshot-on-stop", "1")
            for _ in range(2):
                who("vps", "restart", "same", "--grace", "0")
            who("vps", "rm", "same", "--force")
        assert set(mine) < set(snapshots(agentless, "same"))
        assert len(snapshots(agentless, "same")) == 3
    finally:
        other.close()


@pytest.mark.slow
def test_a_stop_during_a_restore_comes_after_it(agentless, node):
    create(agentless, "box", "node1::0")
    made = agentless.json("vps", "snapshot", "box")["snapshot"]
    restoring = agentless.start("vps", "restore", "box", made, "--yes")
    until(lambda: "stop-asked" in agentless("events", "box").out)
    agentless("vps", "stop", "box", "--grace", "0")
    assert restoring.wait(60) == 0
    restoring.communicate()
    assert agentless.get("/v1/vps/box")["state"] == "stopped"
    assert node.sh("docker ps --quiet").stdout == ""


@pytest.mark.slow
def test_a_snapshot_on_stop_that_fails_is_told_and_nothing_is_replaced(agentless, node):
    create(agentless, "box", "node1::0", "--snapshot-on-stop", "1")
    made = agentless.json("vps", "snapshot", "box")["snapshot"]
    ssh(agentless, "box", "echo kept >/file")
    real = node.sh("command -v docker").stdout.strip()
    wrapper = node.dir / "bin" / "docker"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" != commit ] || {{ echo no space left >&2; exit 1; }}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    try:
        assert "no space left" in agentless("vps", "restore", "box", made, "--yes", code=1).err
        assert ssh(agentless, "box", "cat /file") == "kept\n"
        assert "no space left" in agentless("vps", "stop", "box", "--grace", "0", code=1).err
    finally:
        wrapper.unlink()


def test_cores_and_memory_change_while_it_runs(agentless, node):
    task = create(agentless, "box", "node1::0", "--cores", "1", "--memory", "64M")
    changed = agentless.json("vps", "resize", "box", "--memory", "128M")
    assert (changed["id"], changed["cores"], changed["memory_bytes"]) == (task["id"], 1, 128_000_000)
    limits = inspect(node, task["id"])["HostConfig"]
    assert (limits["NanoCpus"], limits["Memory"]) == (10**9, 128_000_000)
    agentless.kill_controller()
    assert agentless.get("/v1/vps/box")["memory_bytes"] == 128_000_000


def test_other_gpus_come_with_a_new_container_that_has_its_files(agentless, node):
    create(agentless)
    ssh(agentless, "box", "echo kept >/file")
    changed = agentless.json("vps", "resize", "box", "node1::0,1", "--yes")
    assert (changed["state"], changed["gpus"]) == ("running", [0, 1])
    assert ssh(agentless, "box", "cat /file") == "kept\n"
    assert containers(node) == [f"agentless-{changed['id']}"]


def test_what_cannot_be_stops_nothing_and_takes_no_snapshot(agentless, node):
    task = create(agentless, "kept")
    agentless.submit("node1::1", "--", "sleep", "600")
    assert "GPU 1 is allocated" in agentless("vps", "resize", "kept", "node1::0,1", "--yes", code=3).err
    assert "no snapshot kept:9" in agentless("vps", "restore", "kept", "9", "--yes", code=2).err
    assert "cores" in agentless("vps", "resize", "kept", "--cores", "100000", code=3).err
    assert "nothing to change" in agentless("vps", "resize", "kept", code=2).err
    assert "nothing to change" in agentless("vps", "resize", "kept", "1x", "--yes", code=2).err
    assert "nothing to change" in agentless("vps", "resize", "kept", "--cores", "0", "--yes", code=2).err
    assert "would end; to do that, add --yes" in agentless("vps", "resize", "kept", "2x", code=2).err
    assert "snapshot 'a b'" in agentless("vps", "restore", "kept", "a b", "--yes", code=2).err
    now = agentless.get("/v1/vps/kept")
    assert (now["id"], now["container"]) == (task["id"], task["container"])
    assert snapshots(agentless, "kept") == []
    agentless("vps", "stop", "kept", "--grace", "0")
    assert "agentless vps start kept" in agentless("vps", "resize", "kept", "--cores", "1", code=3).err


@pytest.mark.slow
def test_its_ends_are_shown_and_can_be_changed_while_it_runs(agentless):
    create(agentless, "box", "node1", "--expires", "1h")
    before = agentless.get("/v1/vps/box")
    assert before["stops_at"] or until(lambda: agentless.get("/v1/vps/box")["stops_at"])
    agentless("vps", "set", "box", "--expires", "0", "--idle-stop", "4h", "--snapshot-on-stop", "2")
    assert agentless.get(f"/v1/tasks/{before['id']}/spec")["terms"]["idle_stop"] == 4 * 3600
    shown = agentless("vps", "show", "box").out
    assert "idle stop  after 4h 0m without use" in shown
    assert "expires" not in shown.partition("\n\n")[0]
    until(lambda: agentless.get("/v1/vps/box")["stops_at"] is None)
    assert "nothing to change" in agentless("vps", "set", "box", code=2).err


def test_who_waits_for_its_gpu_does_not_get_it_while_it_is_restarted_or_restored(agentless, node):
    create(agentless)
    agentless("vps", "snapshot", "box")
    waiting = agentless.submit("node1::0", "--", "sleep", "600")
    agentless("vps", "restart", "box", "--grace", "0")
    agentless("vps", "restore", "box", agentless.json("vps", "snapshots", "box")[-1]["snapshot"], "--yes")
    assert agentless.get("/v1/vps/box")["gpus"] == [0]
    assert agentless.task(waiting)["state"] == "pending"
    agentless("vps", "stop", "box", "--grace", "0")
    until(lambda: agentless.task(waiting)["state"] == "running")
