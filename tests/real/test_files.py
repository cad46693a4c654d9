"""The files a controller lives on: its state, the inventory and an admin's templates, whole or broken."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from agentless.paths import template_dir
from tests.real.cli import Cli, containers, inspect, inventory_of, until


@pytest.fixture
def alone(lab):
    """Somebody whose controller has not been started yet."""
    cli = Cli(lab, "alone")
    yield cli
    cli.close()


# ---------------------------------------------------------------------- state


def test_a_torn_state_file(alone):
    """The copy before it is used, and commands say so. What runs on the nodes is shown all the same."""
    alone.submit("node1::0", "--", "sleep", "60")
    task = alone.submit("node1::1", "--", "sleep", "60")
    alone.kill_controller()
    file = alone.state / "state.json"
    file.write_bytes(file.read_bytes()[:100])
    done = alone("ps")
    assert "state.json is damaged; restored the previous copy, state.json.last" in done.err
    assert done.out.count(" running ") == 2
    assert alone.gpu("node1::1")["task"] == task


def test_a_state_file_that_is_torn_with_its_copy(alone):
    alone("nodes")
    alone.kill_controller()
    for name in ("state.json", "state.json.last"):
        (alone.state / name).write_text("{")
    said = alone("gpus", code=1).err
    assert "is damaged, and so is the previous copy; move both away, then run: agentless recover" in said


@pytest.mark.slow
def test_a_state_folder_that_somebody_removed(alone):
    """The nodes know what runs on them, and whose it is."""
    task = alone.submit("node1::0", "--name", "kept", "--", "sleep", "60")
    before = alone.task(task)
    alone.kill_controller()
    shutil.rmtree(alone.state)
    after = alone.task("kept")
    assert {key for key in before if before[key] != after[key]} - {"started_at"} == {"reason", "foreign"}
    assert after["reason"] == "foreign: this controller did not start it; if you did, run: agentless recover"
    assert alone("kill", "kept").code == 0


def test_a_state_file_of_a_newer_version(alone):
    alone("nodes")
    alone.kill_controller()
    file = alone.state / "state.json"
    newer = file.read_bytes().replace(b'"version":2', b'"version":999')
    file.write_bytes(newer)
    said = alone("gpus", code=1).err
    assert "is from a newer agentless (state version 999, this one supports 3); upgrade agentless, or " in said
    assert file.read_bytes() == newer


@pytest.fixture
def small_disk(lab):
    """Somebody whose state folder is a file system of its own; gives them and a way to mount it anew."""
    cli = Cli(lab, "small-disk")
    mount = ["mount", "-t", "tmpfs", "-o"]
    folder = cli.env["XDG_STATE_HOME"]
    subprocess.run([*mount, "size=2m", "tmpfs", folder], check=True)
    yield cli
    subprocess.run([*mount, "remount,rw,size=4m", folder], check=True)
    cli("controller", "stop", code=None)
    subprocess.run(["umount", "--lazy", folder], check=True)
    cli.close()


def fill(folder):
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_a_full_disk_at_the_start(small_disk):
    fill(Path(small_disk.env["XDG_STATE_HOME"]))
    said = small_disk("gpus", code=1).err
    assert said.startswith("agentless: ")
    assert "full" in said or "No space left on device" in said


def test_a_full_disk_later(small_disk):
    """A submit is refused before anything was started; what was shown is still shown."""
    small_disk.settle()
    fill(small_disk.state)
    said = small_disk("submit", "node1::0", "--", "sleep", "60", code=1).err
    assert "the disk is full; free some space there" in said
    assert containers(small_disk.lab.nodes["node1"]) == []
    assert small_disk.is_free()
    (small_disk.state / "filler").unlink()
    small_disk.submit("node1::0", "--", "true")


@pytest.mark.slow
def test_what_ends_work_is_possible_with_a_full_disk(small_disk):
    """And doctor tells of the disk."""
    runs, killed, waits = (small_disk.submit(f"node1::{gpu}", "--", "sleep", "600") for gpu in (0, 1, 0))
    until(lambda: [small_disk.task(task)["state"] for task in (runs, killed, waits)] == [*["running"] * 2, "pending"])
    fill(small_disk.state)
    for verb, task in (("stop", runs), ("kill", killed), ("stop", waits)):
        assert "the disk is full" in small_disk(verb, task).err
    assert small_disk.lab.nodes["node1"].sh("docker ps --quiet").stdout == ""
    (failed,) = [check for check in small_disk.json("doctor", code=1) if not check["ok"]]
    assert (failed["node"], failed["check"]) == ("controller", "state")
    assert "the disk is full; free some space there" in failed["detail"]
    (small_disk.state / "filler").unlink()
    ended = {runs: "stopped", killed: "killed", waits: "cancelled"}
    until(lambda: {task: small_disk.task(task)["state"] for task in ended} == ended)
    assert all(check["ok"] for check in small_disk.json("doctor"))


@pytest.mark.slow
def test_a_task_that_ends_while_the_disk_is_full_is_not_lost(small_disk):
    small_disk.settle()
    task = small_disk.submit("node1::0", "--", "sh", "-c", "until [ -e /go ]; do sleep .05; done; exit 5")
    fill(small_disk.state)
    small_disk.lab.nodes["node1"].sh(f"docker exec agentless-{task} touch /go; docker wait agentless-{task}")
    small_disk("ps")
    (small_disk.state / "filler").unlink()
    assert small_disk("wait", task, code=5).code == 5


def test_a_state_folder_that_is_read_only(small_disk):
    small_disk("nodes")
    small_disk("controller", "stop")
    subprocess.run(["mount", "-o", "remount,ro", small_disk.env["XDG_STATE_HOME"]], check=True)
    said = small_disk("gpus", code=1).err
    assert str(small_disk.state) in said
    assert "ead-only file system" in said


def test_a_state_folder_that_is_a_file(alone):
    shutil.rmtree(alone.state, ignore_errors=True)
    alone.state.write_text("")
    assert str(alone.state) in alone("gpus", code=1).err


# ---------------------------------------------------------------------- inventory


def test_another_inventory_is_refused(agentless):
    other = agentless.config / "other.yaml"
    other.write_text(inventory_of(agentless.lab))
    said = agentless("-i", str(other), "gpus", code=3).err
    assert f"the running controller uses {agentless.inventory}, not {other}; run: agentless controller stop" in said


def test_an_edited_inventory_is_followed(alone):
    alone("nodes")
    pid = alone.pid
    alone.write_inventory(inventory_of(alone.lab, node1="exclude_gpus: [1]"))
    assert alone.gpu("node1::1")["state"] == "excluded"
    assert alone.pid == pid


def test_an_inventory_that_is_broken_while_it_is_used(alone):
    """What can be seen is still seen, with a warning; nothing is started by an inventory that nobody meant."""
    alone("nodes")
    alone.write_inventory("version: 1\nnodes: [")
    done = alone("nodes")
    assert done.out.count(" online ") == 2
    assert done.err.startswith(f"agentless: warning: {alone.inventory}:2:")
    assert "still using the last valid version" in done.err
    assert alone("submit", "node1", "--", "true", code=2).err.startswith(f"agentless: {alone.inventory}:2:")


@pytest.mark.slow
def test_a_tasks_node_that_is_taken_out_of_the_inventory(alone):
    task = alone.submit("node2::0", "--", "sleep", "60")
    alone.write_inventory(inventory_of(alone.lab).partition("  node2:")[0])
    assert "is no longer in the inventory; add it again" in alone("stop", task, code=4).err
    alone.write_inventory(inventory_of(alone.lab))
    assert alone("kill", task).out == f"{task}  killed (137)\n"


# ---------------------------------------------------------------------- an admin's own templates


@pytest.fixture
def template(alone):
    """The admin's own version of how a container is run."""
    file = alone.config / "templates/docker-run.j2"
    file.parent.mkdir()
    return file


@pytest.mark.slow
def test_an_admins_template_is_used_from_the_next_launch_on(alone, template):
    """Also by a controller that has used the packaged one already."""
    assert inspect(alone.lab.nodes["node1"], alone.submit("node1", "--", "true"))["HostConfig"].get("Init") is None
    template.write_text(next(template_dir().rglob(template.name)).read_text().replace(" create ", " create --init "))
    task = alone.submit("node1", "--", "sleep", "60")
    assert inspect(alone.lab.nodes["node1"], task)["HostConfig"]["Init"] is True


@pytest.mark.slow
def test_a_broken_template_is_told_and_holds_no_gpu(alone, template):
    template.write_text("{{ docker }} run {% if %}")
    said = alone("submit", "node1::0", "--", "true", code=1).err
    assert said.startswith(f"agentless: template {template}:1: ")
    template.write_text("{{ docker }} run\n{{ nobody }}")
    said = alone("submit", "node1::0", "--", "true", code=1).err
    assert said.startswith(f"agentless: template {template}:2: 'nobody' is undefined")
    assert alone.is_free()
    template.unlink()
    alone("submit", "node1::0", "--wait", "--", "true")
