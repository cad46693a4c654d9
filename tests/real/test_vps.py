"""`agentless vps` on real engines: a container that stays, is stopped and started, and comes back with its node."""

from __future__ import annotations

import shutil
from datetime import datetime

import pytest

from tests.real.cli import Cli, containers, inspect, inventory_of, until

pytestmark = pytest.mark.usefixtures("no_vps_left")


def create(agentless, name="box", target="node1::0", *words):
    return agentless.json("vps", "create", name, target, *words)


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def ssh(agentless, name, *words, code=0):
    return agentless("vps", "ssh", name, "--", *words, code=code).out


def test_it_waits_for_its_user_and_has_its_name_and_its_gpu(agentless, node):
    task = create(agentless)
    assert (task["state"], task["node"], task["gpus"], task["name"]) == ("running", "node1", [0], "box")
    assert ssh(agentless, "box", "hostname") == "box\n"
    assert agentless.gpu("node1::0")["state"] == "allocated"
    [row] = agentless.json("vps", "list")
    assert row["name"] == "box"
    assert "exists; to see it" in agentless("vps", "create", "box", "node1::1", code=3).err


def test_stop_frees_its_gpus_and_start_has_them_and_its_files_again(agentless):
    create(agentless)
    ssh(agentless, "box", "echo kept >/file")
    agentless("vps", "stop", "box", "--grace", "2")
    assert agentless.gpu("node1::0")["state"] == "free"
    [row] = agentless.json("vps", "list")
    assert row["state"] == "stopped"
    assert "agentless vps start box" in agentless("vps", "ssh", "box", code=3).err
    started = agentless.json("vps", "start", "box")
    assert (started["state"], started["gpus"]) == ("running", [0])
    assert ssh(agentless, "box", "cat /file") == "kept\n"
    assert agentless.gpu("node1::0")["state"] == "allocated"
    assert "nothing to start" in agentless("vps", "start", "box", code=3).err
    agentless("vps", "restart", "box", "--grace", "2")
    assert ssh(agentless, "box", "cat /file") == "kept\n"


def test_who_has_its_gpu_meanwhile_is_told_and_nothing_is_given_twice(agentless, node):
    create(agentless)
    agentless("vps", "stop", "box", "--grace", "2")
    task = agentless.submit("node1::0", "--", "sleep", "600")
    refused = agentless("vps", "start", "box", code=3).err
    assert task in refused
    assert not inspect(node, agentless.get("/v1/vps/box")["id"])["State"]["Running"]
    agentless("kill", task)
    agentless("wait", task, code=None)
    agentless("vps", "start", "box")


@pytest.mark.slow
def test_a_gpu_that_another_controller_has_given_is_refused_by_the_node(lab, agentless, node):
    create(agentless)
    agentless("vps", "stop", "box", "--grace", "2")
    other = Cli(lab, "other").settle()
    try:
        task = other.submit("node1::0", "--", "sleep", "600")
        refused = agentless("vps", "start", "box", code=3).err
        assert "node1::0" in refused
        assert "held by" in refused
        assert not inspect(node, agentless.get("/v1/vps/box")["id"])["State"]["Running"]
        assert agentless.get("/v1/vps/box")["state"] == "stopped"
        other("kill", task)
        other("wait", task, code=None)
    finally:
        other.close()
    agentless("vps", "start", "box")


def test_of_two_starts_at_once_one_wins_and_it_runs_once(agentless, node):
    create(agentless)
    agentless("vps", "stop", "box", "--grace", "2")
    both = [agentless.start("vps", "start", "box") for _ in range(2)]
    codes = sorted(process.wait(60) for process in both)
    for process in both:
        process.communicate()
    assert codes == [0, 3]
    assert agentless.get("/v1/vps/box")["state"] == "running"


@pytest.mark.slow
def test_a_killed_controller_ends_no_vps_and_loses_none(agentless):
    create(agentless)
    create(agentless, "other", "node1::1")
    agentless("vps", "stop", "other", "--grace", "2")
    agentless.kill_controller()
    assert {each["name"]: each["state"] for each in agentless.json("vps", "list")} == {
        "box": "running", "other": "stopped",
    }  # fmt: skip
    agentless("vps", "start", "other")


@pytest.mark.slow
def test_it_comes_back_with_its_node(agentless, node):
    create(agentless)
    ssh(agentless, "box", "echo kept >/file")
    before = inspect(node, agentless.get("/v1/vps/box")["id"])["State"]["StartedAt"]
    node.kill_docker()
    node.start_docker()
    until(lambda: inspect(node, agentless.get("/v1/vps/box")["id"])["State"]["StartedAt"] != before)
    until(lambda: agentless.get("/v1/vps/box")["state"] == "running")
    assert ssh(agentless, "box", "cat /file") == "kept\n"


def test_bad_input_is_a_sentence(agentless):
    assert "no VPS 'nothing'" in agentless("vps", "start", "nothing", code=2).err
    assert "no resources requested" in agentless("vps", "create", "box", code=2).err
    assert "a VPS needs a container" in agentless("vps", "create", "box", "1x", "--container", "NULL", code=2).err
    create(agentless)
    assert "first run: agentless vps stop box" in agentless("vps", "rm", "box", "--yes", code=3).err
    task = agentless.get("/v1/vps/box")["id"]
    assert "agentless vps rm box" in agentless("rm", task, "--force", code=3).err
    agentless("vps", "stop", "box", "--grace", "2")
    assert "agentless vps start box" in agentless("retry", task, code=3).err


@pytest.mark.slow
def test_what_is_stopped_is_kept_and_removed_on_request(agentless, node):
    """Containers of ended tasks are removed after a while; one that can be started again is none of those."""
    agentless.write_inventory(
        inventory_of(agentless.lab, "image: busybox").replace("nodes:", "keep: {containers: 1s}\nnodes:")
    )
    create(agentless)
    agentless("vps", "stop", "box", "--grace", "2")
    task = agentless.submit("node1", "--wait", "--", "true")
    until(lambda: f"agentless-{task}" not in containers(node))
    assert f"agentless-{agentless.get('/v1/vps/box')['id']}" in containers(node)
    agentless("vps", "rm", "box", "--yes")
    assert agentless.json("vps", "list") == []
    assert containers(node) == []


def test_usage_has_all_runs(agentless):
    create(agentless)
    first = agentless.get("/v1/vps/box")["started_at"]
    agentless("vps", "stop", "box", "--grace", "0")
    agentless("vps", "start", "box")
    again = agentless.get("/v1/vps/box")["started_at"]
    edges = [seconds(first), seconds(again)]
    assert agentless.get("/v1/usage", edge=edges, by="owner")["total"]["tasks"] == 1
    agentless("vps", "stop", "box", "--grace", "0")
    edges[1] = seconds(agentless.get("/v1/vps/box")["ended_at"]) + 1
    assert agentless.get("/v1/usage", edge=edges, by="owner")["total"]["tasks"] == 2


def test_recover_brings_back_a_stopped_vps_and_one_that_runs(lab, agentless):
    create(agentless)
    ssh(agentless, "box", "echo kept >/file")
    create(agentless, "other", "node1::1", "--memory", "64M")
    agentless("vps", "resize", "other", "--memory", "128M", "--cores", "2")
    agentless("vps", "stop", "box", "--grace", "0")
    agentless.kill_controller()
    shutil.rmtree(agentless.state)
    agentless("recover", "--yes")
    assert {each["name"]: each["state"] for each in agentless.json("vps", "list")} == {
        "box": "stopped", "other": "running",
    }  # fmt: skip
    other = agentless.get("/v1/vps/other")
    assert (other["cores"], other["memory_bytes"]) == (2, 128_000_000)
    agentless("vps", "start", "box")
    assert ssh(agentless, "box", "cat /file") == "kept\n"


@pytest.mark.slow
def test_one_that_nobody_uses_is_stopped_after_a_warning_and_one_that_works_is_not(agentless):
    create(agentless, "busy", "node1", "--idle-stop", "1min", "--", "sh", "-c", "while :; do :; done")
    create(agentless, "visited", "node1", "--idle-stop", "1min")
    visit = agentless.start("vps", "ssh", "visited", "--", "sleep", "600")
    create(agentless, "box", "node1::0", "--idle-stop", "1min")
    until(lambda: "stops in" in (agentless.get("/v1/vps/box")["reason"] or ""), 120)
    until(lambda: agentless.get("/v1/vps/box")["state"] == "stopped")
    assert agentless.get("/v1/vps/box")["reason"] == "--idle-stop 1m 0s"
    assert [agentless.get(f"/v1/vps/{name}")["state"] for name in ("busy", "visited")] == ["running", "running"]
    visit.kill()
    visit.communicate()


@pytest.mark.slow
def test_who_has_logged_in_is_told_on_the_terminal_before_it_stops(agentless):
    create(agentless, "box", "node1::0", "--expires", "1min")
    _, screen = agentless.terminal("vps", "ssh", "box")
    assert "agentless: box stops in 1" in screen
    assert "to start it: agentless vps start box" in screen
    until(lambda: agentless.get("/v1/vps/box")["state"] == "stopped")
