"""The controller behind the commands: one at a time, on demand, and never in the way of a task."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from agentless.paths import template_dir
from tests.real.cli import Cli, Events, containers, finish, inspect, inventory_of, is_alive, until


@pytest.fixture
def agentless(lab):
    return Cli(lab).settle()


@pytest.fixture
def alone(lab):
    """Somebody whose controller has not been started yet."""
    cli = Cli(lab, "alone")
    yield cli
    cli.close()


@pytest.fixture
def held_lock():
    """Another launch on the node takes its time. The nodes of a lab share their files, and so this lock."""
    with contextlib.ExitStack() as stack:
        lock = os.open("/", os.O_RDONLY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(lock, fcntl.LOCK_UN)


def begin_to_start(agentless, *options):
    """A submit that waits for the lock of its node, with its task saved."""
    process = agentless.start("submit", "node1::0", *options, "--", "sleep", "60")
    until(lambda: any(task["state"] == "assigning" for task in agentless.client.get("/v1/tasks")))
    return process


# ---------------------------------------------------------------------- one of them, on demand


def test_the_first_command_starts_it(alone):
    assert alone("controller", "status", code=1).out.startswith("no controller runs")
    alone("nodes")
    assert alone.json("controller", "status")["pid"] == alone.pid


def test_many_first_commands_start_one(alone):
    started = [alone.start("gpus", "--json") for _ in range(6)]
    assert [len(json.loads(finish(process).out)) for process in started] == [4] * 6
    serving = f"agentless.controller\0{alone.state}\0".encode()
    found = [p for p in Path("/proc").glob("[0-9]*/cmdline") if serving in _read(p)]
    assert found == [Path(f"/proc/{alone.pid}/cmdline")]


def test_a_second_one_is_refused(agentless):
    pid = agentless.pid
    said = agentless("controller", "run", code=1).err
    assert said == f"agentless: a controller runs already for {agentless.state}; agentless controller status shows it\n"
    assert agentless.pid == pid


def test_its_end_ends_no_task(alone):
    task = alone.submit("node1::0", "--", "sleep", "60")
    pid = alone.pid
    alone("controller", "stop")
    until(lambda: not is_alive(pid))
    assert inspect(alone.lab.nodes["node1"], task)["State"]["Running"]
    assert alone.task(task)["state"] == "running"


def test_in_the_foreground_for_a_service_manager(alone):
    process = alone.start("controller", "run")
    assert process.stdout.readline() == f"serving {alone.inventory} on {alone.state}/controller.sock\n"
    assert alone.pid == process.pid
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0
    assert not (alone.state / "controller.sock").exists()


def test_a_stale_socket_is_no_obstacle(alone):
    alone("nodes")
    alone.kill_controller()
    assert (alone.state / "controller.sock").exists()
    assert [node["state"] for node in alone.json("nodes")] == ["online", "online"]


def test_only_its_user_can_reach_it(alone):
    alone("nodes")
    assert stat.S_IMODE(alone.state.stat().st_mode) == 0o700
    assert stat.S_IMODE((alone.state / "controller.sock").stat().st_mode) == 0o600


def test_it_opens_no_port(agentless):
    inodes = {m[1] for link in _links(agentless.pid) if (m := re.fullmatch(r"socket:\[(\d+)\]", link))}
    listening = {line.split()[9] for kind in ("tcp", "tcp6") for line in _table(kind) if line.split()[3] == "0A"}
    assert inodes
    assert not inodes & listening


def test_it_speaks_openapi(agentless):
    described = agentless.client.get("/openapi.json")
    assert {"/v1/tasks", "/v1/tasks/{task}/logs", "/v1/gpus", "/v1/nodes/{node}", "/v1/events"} <= set(
        described["paths"]
    )


def test_events_tell_a_tasks_life(agentless):
    events = Events(agentless, last="exited")
    agentless("submit", "node1", "--name", "lived", "--wait", "--", "true")
    seen = [(news["event"], news["task"]["state"]) for news in events.all() if news["kind"] == "task"]
    assert seen == [("assigned", "assigning"), ("launched", "running"), ("exited", "completed")]


# ---------------------------------------------------------------------- killed in the middle


def test_a_wait_goes_on_with_the_next_controller(agentless):
    task = agentless.submit("node1::0", "--", "sh", "-c", "until [ -e /go ]; do sleep .05; done; exit 5")
    process = agentless.start_request("wait", task)
    agentless.kill_controller()
    until(agentless.client.is_running)
    agentless.lab.nodes["node1"].sh(f"docker exec agentless-{task} touch /go")
    assert finish(process).code == 5


def test_a_log_that_is_cut_off_is_no_end(agentless):
    """Nobody takes the death of the controller for the end of the task."""
    task = agentless.submit("node1::0", "--", "sh", "-c", "echo begin; exec sleep 60")
    following = agentless.start("logs", "-f", task)
    assert following.stdout.readline() == "begin\n"
    agentless.kill_controller()
    done = finish(following)
    assert done.code == 1
    assert "the controller went away" in done.err


def test_a_submit_that_the_controller_died_in_starts_once(agentless, held_lock):
    """Whether its script had reached the node or not: the task runs, once, and ps shows it."""
    submit = begin_to_start(agentless)
    agentless.kill_controller()
    assert finish(submit).code == 1
    held_lock()
    (task,) = agentless.json("ps")
    until(lambda: agentless.task(task["id"])["state"] == "running")
    assert containers(agentless.lab.nodes["node1"]) == [f"agentless-{task['id']}"]


def test_ctrl_c_in_a_submit_leaves_nothing_half_done(agentless, held_lock):
    submit = begin_to_start(agentless)
    submit.send_signal(signal.SIGINT)
    done = finish(submit)
    assert (done.code, "agentless ps" in done.err) == (130, True)
    held_lock()
    (task,) = agentless.json("ps")
    until(lambda: agentless.task(task["id"])["state"] == "running")


def test_a_stop_before_the_start_wins(agentless, held_lock):
    submit = begin_to_start(agentless)
    (task,) = agentless.json("ps")
    stop = agentless.start("stop", task["id"], "--grace", "0s")
    until(lambda: agentless.task(task["id"])["reason"] == "stopping")
    held_lock()
    finish(stop)
    finish(submit)
    assert agentless.task(task["id"])["state"] in ("stopped", "cancelled")
    assert agentless.is_free()


def test_a_secret_outlives_a_controller_that_died_before_the_start(agentless, held_lock):
    submit = begin_to_start(agentless, "-s", "TOKEN=hush")
    agentless.kill_controller()
    finish(submit)
    held_lock()
    (task,) = agentless.json("ps")
    until(lambda: agentless.task(task["id"])["state"] == "running")
    assert "TOKEN=hush" in inspect(agentless.lab.nodes["node1"], task["id"])["Config"]["Env"]
    assert not any((agentless.state / "secrets").iterdir())


# ---------------------------------------------------------------------- its files


def test_a_torn_state_file(alone):
    """The copy before it is used, and commands say so. What runs on the nodes is shown all the same."""
    alone.submit("node1::0", "--", "sleep", "60")
    task = alone.submit("node1::1", "--", "sleep", "60")
    alone.kill_controller()
    file = alone.state / "state.json"
    file.write_bytes(file.read_bytes()[:100])
    done = alone("ps")
    assert "state.json is torn; went on from the copy before it, state.json.last" in done.err
    assert done.out.count(" running ") == 2
    assert alone.gpu("node1::1")["task"] == task


def test_a_state_file_that_is_torn_with_its_copy(alone):
    alone("nodes")
    alone.kill_controller()
    for name in ("state.json", "state.json.last"):
        (alone.state / name).write_text("{")
    said = alone("gpus", code=1).err
    assert "is torn, and so is the copy before it; move both away and start again" in said


def test_a_state_folder_that_somebody_removed(alone):
    """The nodes know what runs on them, and whose it is."""
    task = alone.submit("node1::0", "--name", "kept", "--", "sleep", "60")
    before = alone.task(task)
    alone.kill_controller()
    shutil.rmtree(alone.state)
    after = alone.task("kept")
    assert [key for key in before if before[key] != after[key]] in ([], ["started_at"])
    assert alone("kill", "kept").code == 0


def test_a_state_file_of_a_newer_version(alone):
    alone("nodes")
    alone.kill_controller()
    file = alone.state / "state.json"
    newer = file.read_bytes().replace(b'"version":1', b'"version":999')
    file.write_bytes(newer)
    said = alone("gpus", code=1).err
    assert "is from a newer agentless (state version 999, this one knows 1); upgrade agentless, or " in said
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


# ---------------------------------------------------------------------- its inventory


def test_another_inventory_is_refused(agentless):
    other = agentless.config / "other.yaml"
    other.write_text(inventory_of(agentless.lab))
    said = agentless("-i", str(other), "gpus", code=3).err
    assert f"the running controller serves {agentless.inventory}, not {other}; run: agentless controller stop" in said


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
    assert "the last good version is in force" in done.err
    assert alone("submit", "node1", "--", "true", code=2).err.startswith(f"agentless: {alone.inventory}:2:")


def test_a_tasks_node_that_is_taken_out_of_the_inventory(alone):
    task = alone.submit("node2::0", "--", "sleep", "60")
    alone.write_inventory(inventory_of(alone.lab).partition("  node2:")[0])
    assert "is not in the inventory any more; add it again" in alone("stop", task, code=4).err
    alone.write_inventory(inventory_of(alone.lab))
    assert alone("kill", task).out == f"{task}  killed (137)\n"


# ---------------------------------------------------------------------- an admin's own templates


@pytest.fixture
def template(alone):
    """The admin's own version of how a container is run."""
    file = alone.config / "templates/docker-run.j2"
    file.parent.mkdir()
    return file


def test_an_admins_template_is_used(alone, template):
    template.write_text((template_dir() / template.name).read_text().replace("run --detach", "run --detach --init"))
    task = alone.submit("node1", "--", "sleep", "60")
    assert inspect(alone.lab.nodes["node1"], task)["HostConfig"]["Init"] is True


def test_a_broken_template_is_told_and_holds_no_gpu(alone, template):
    template.write_text("{{ docker }} run {% if %}")
    said = alone("submit", "node1::0", "--", "true", code=1).err
    assert said.startswith(f"agentless: template {template}:1: ")
    assert alone.is_free()


def _read(file):
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def _links(pid):
    return [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]


def _table(kind):
    return Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
