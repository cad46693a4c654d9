"""Settings of the inventory for tasks, on real engines: what a container has of them, and from when on."""

from __future__ import annotations

import contextlib

import pytest

from tests.real.cli import Cli, inspect, inventory_of, until

SEEN = 'cat /data/x; echo "$A $B"; echo "$AGENTLESS_LOCAL_TEMP $AGENTLESS_SHARED"; df -k /dev/shm | tail -n 1'


@pytest.fixture
def folder(lab):
    found = lab.root / "settings"
    for name in ("usual", "of2", "mine", "shared"):
        (found / name).mkdir(parents=True, exist_ok=True)
        (found / name / "x").write_text(f"{name}\n")
    return found


@pytest.fixture
def agentless(lab, folder):
    usual = f"mounts: ['{folder}/usual:/data:ro'], env: {{A: a, B: b}}, shm_size: 32MiB, shared_dir: {folder}/shared"
    of2 = f"mounts: ['{folder}/of2:/data'], env: {{B: two}}, network: none"
    with contextlib.closing(Cli(lab, "settings", inventory_of(lab, f"image: busybox, {usual}", node2=of2))) as cli:
        yield cli.settle()


def test_each_task_has_the_mounts_variables_and_limits_of_its_node_and_its_own_win(lab, agentless, folder):
    one, two = agentless.json("submit", "node1", "node2", "--wait", "--", "sh", "-c", SEEN)
    assert agentless("logs", one["id"]).out.split()[:5] == ["usual", "a", "b", "/tmp", "/shared"]
    assert agentless("logs", two["id"]).out.split()[:5] == ["of2", "a", "two", "/tmp", "/shared"]
    hosts = [inspect(lab.nodes[task["node"]], task["id"])["HostConfig"] for task in (one, two)]
    assert [(host["ShmSize"], host["NetworkMode"]) for host in hosts] == [(32 << 20, "default"), (32 << 20, "none")]
    own = ("--mount", f"{folder}/mine:/data", "--env", "B=mine", "--network", "host", "--shm-size", "16MiB")
    (task,) = agentless.json("submit", "node2", *own, "--wait", "--", "sh", "-c", SEEN)
    assert agentless("logs", task["id"]).out.split()[:3] == ["mine", "a", "mine"]
    host = inspect(lab.nodes["node2"], task["id"])["HostConfig"]
    assert (host["ShmSize"], host["NetworkMode"]) == (16 << 20, "host")


def test_a_dry_run_shows_them_and_an_edit_counts_from_the_next_launch_on(lab, agentless):
    script = agentless("submit", "node2", "--dry-run", "--", "true").out
    assert " --env A=a --env B=two " in script
    task = agentless.submit("node2", "--", "sleep", "300")
    agentless.write_inventory(agentless.inventory.read_text().replace("B: two", "B: three"))
    assert " --env B=three " in agentless("submit", "node2", "--dry-run", "--", "true").out
    assert "B=two" in inspect(lab.nodes["node2"], task)["Config"]["Env"]
    assert agentless.task(task)["state"] == "running"


@pytest.mark.slow
def test_a_retry_and_a_recovered_task_have_only_what_was_requested_in_their_spec(lab, agentless):
    task = agentless.submit("node2", "--env", "C=c", "--stop-grace", "0", "--", "sleep", "300")
    agentless("controller", "stop")
    (agentless.state / "state.json").unlink()
    agentless("recover")
    assert agentless.get(f"/v1/tasks/{task}/spec")["env"] == {"C": "c"}
    agentless("stop", task)
    agentless.write_inventory(agentless.inventory.read_text().replace("B: two", "B: three"))
    (again,) = agentless.json("retry", task)
    until(lambda: agentless.task(again["id"])["state"] == "running")
    assert {"B=three", "C=c"} <= set(inspect(lab.nodes["node2"], again["id"])["Config"]["Env"])


@pytest.mark.slow
def test_an_upload_that_a_mount_of_the_node_would_hide_is_refused(agentless, tmp_path):
    (tmp_path / "x").write_text("mine\n")
    said = agentless("submit", "node1", "--upload", f"{tmp_path}/x:/data/x", "--", "cat", "/data/x", code=1).err
    assert "the task has a mount" in said


def test_a_vps_has_them_too(lab, agentless):
    agentless("vps", "create", "dev", "node1")
    task = next(each for each in agentless.get("/v1/vps") if each["name"] == "dev")["id"]
    assert agentless("shell", "dev", "--", "sh", "-c", 'cat /data/x; echo "$B"').out == "usual\nb\n"
    assert inspect(lab.nodes["node1"], task)["HostConfig"]["ShmSize"] == 32 << 20


def test_a_broken_setting_stops_no_task_and_says_where_it_is(agentless):
    agentless.write_inventory(agentless.inventory.read_text().replace("B: two", "AGENTLESS_B: two"))
    said = agentless("submit", "node1", "--", "true", code=2).err
    assert "nodes.node2.env.AGENTLESS_B: variable AGENTLESS_B is reserved for agentless; choose another name" in said
