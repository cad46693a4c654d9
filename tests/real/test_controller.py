"""The controller behind the commands: one at a time, on demand, and never in the way of a task."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from agentless.client.client import RequestFailed
from tests.proc import process_files
from tests.real.cli import Cli, Events, containers, finish, inspect, is_alive, until


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
    assert alone("controller", "status", code=1).out.startswith("no controller is running")
    alone("nodes")
    assert alone.json("controller", "status")["pid"] == alone.pid


def test_many_first_commands_start_one(alone):
    started = [alone.start("gpus", "--json") for _ in range(6)]
    assert [len(json.loads(finish(process).out)) for process in started] == [4] * 6
    serving = f"agentless.controller\0{alone.state}\0".encode()
    one = Path(f"/proc/{alone.pid}/cmdline")
    until(lambda: [p for p in process_files("cmdline") if serving in _read(p)] == [one])


def test_a_second_one_is_refused(agentless):
    pid = agentless.pid
    said = agentless("controller", "run", code=1).err
    assert (
        said == f"agentless: a controller is already running for {agentless.state}; "
        "to see it, run: agentless controller status\n"
    )
    assert agentless.pid == pid


def test_its_end_ends_no_task(alone):
    task = alone.submit("node1::0", "--", "sleep", "60")
    pid, inventory = alone.pid, alone.inventory.read_text()
    alone.inventory.write_text("")
    alone("controller", "stop")  # also with an inventory that cannot be read
    alone.inventory.write_text(inventory)
    until(lambda: not is_alive(pid))
    assert inspect(alone.lab.nodes["node1"], task)["State"]["Running"]
    assert alone.task(task)["state"] == "running"


@pytest.mark.slow
def test_in_the_foreground_for_a_service_manager(alone):
    process = alone.program("controller", "run")
    assert process.stdout.readline() == f"serving {alone.inventory} on {alone.state}/controller.sock\n"
    assert alone.pid == process.pid
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0
    assert not (alone.state / "controller.sock").exists()


@pytest.mark.slow
def test_a_stale_socket_is_no_obstacle(alone):
    alone("nodes")
    alone.kill_controller()
    assert (alone.state / "controller.sock").exists()
    assert [node["state"] for node in alone.json("nodes")] == ["online", "online"]


def test_only_its_user_can_reach_it(alone):
    alone("nodes")
    assert stat.S_IMODE(alone.state.stat().st_mode) == 0o700
    assert stat.S_IMODE((alone.state / "controller.sock").stat().st_mode) == 0o600


@pytest.mark.slow
def test_it_may_open_more_files_than_the_shell_that_started_it(alone):
    """Who follows a log is one, and at the limit nobody would be answered."""
    assert alone.shell("ulimit -S -n 64 && agentless nodes").code == 0
    limits = Path(f"/proc/{alone.pid}/limits").read_text()
    allowed, most = re.search(r"Max open files +(\d+) +(\d+)", limits).groups()
    assert int(allowed) == min(16_384, int(most))


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


@pytest.mark.slow
def test_a_wait_goes_on_with_the_next_controller(agentless):
    task = agentless.submit("node1::0", "--", "sh", "-c", "until [ -e /go ]; do sleep .05; done; exit 5")
    process = agentless.start_request("wait", task)
    agentless.kill_controller()
    until(agentless.client.is_running)
    agentless.lab.nodes["node1"].sh(f"docker exec agentless-{task} touch /go")
    assert finish(process).code == 5


@pytest.mark.slow
def test_a_log_that_is_cut_off_is_no_end(agentless):
    """Nobody takes the death of the controller for the end of the task."""
    task = agentless.submit("node1::0", "--", "sh", "-c", "echo begin; until [ -e /go ]; do sleep 0.05; done; echo end")
    following = agentless.start("logs", "-f", task)
    assert following.stdout.readline() == "begin\n"
    agentless.kill_controller()
    agentless.lab.nodes["node1"].sh(f"docker exec agentless-{task} touch /go")
    done = finish(following)
    assert (done.code, done.out) == (0, "end\n")


def test_a_submit_that_the_controller_died_in_starts_once(agentless, held_lock):
    """Whether its script had reached the node or not: the submit asks the next controller, and the task runs once."""
    submit = begin_to_start(agentless)
    agentless.kill_controller()
    held_lock()
    done = finish(submit)
    (task,) = agentless.json("ps")
    assert (done.code, done.out, done.err) == (0, f"{task['id']}\n", "")
    until(lambda: agentless.task(task["id"])["state"] == "running")
    assert containers(agentless.lab.nodes["node1"]) == [f"agentless-{task['id']}"]


def test_a_launch_that_died_with_its_controller_is_tried_again(agentless, held_lock):
    """Also what it had sent to the node is gone, as after a reboot."""
    node = agentless.lab.nodes["node1"]
    submit = begin_to_start(agentless)
    submit.kill()
    agentless.kill_controller()
    until(lambda: not kill(node.leftovers()))
    held_lock()
    finish(submit)
    (task,) = agentless.json("ps")
    until(lambda: agentless.task(task["id"])["state"] == "running")
    assert containers(node) == [f"agentless-{task['id']}"]


def test_a_gpu_is_held_from_before_the_start(agentless, held_lock):
    submit = begin_to_start(agentless)
    (task,) = agentless.json("ps")
    assert f"held by task {task['id']}" in agentless("submit", "node1::0,1", "--no-queue", "--", "true", code=3).err
    held_lock()
    finish(submit)


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
    held_lock()
    assert finish(submit).code == 0
    (task,) = agentless.json("ps")
    until(lambda: agentless.task(task["id"])["state"] == "running")
    assert "TOKEN=hush" in inspect(agentless.lab.nodes["node1"], task["id"])["Config"]["Env"]
    assert not any((agentless.state / "secrets").iterdir())


def kill(processes):
    """SIGKILL what a node lists; gives it back."""
    for pid, _ in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return processes


def _read(file):
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def _links(pid):
    return [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]


def _table(kind):
    return Path(f"/proc/net/{kind}").read_text().splitlines()[1:]


def test_a_command_of_another_version_says_what_to_do(agentless, monkeypatch):
    monkeypatch.setattr("agentless.client.client.__version__", "99.0")
    with pytest.raises(RequestFailed) as caught:
        agentless.client.get("/v1/tasks")
    assert "this command is 99.0; run: agentless controller stop (tasks keep running)" in str(caught.value)
    assert agentless.client.get("/v1/controller")["pid"]
