"""A node with podman in Docker's place: everything works as with Docker, and a GPU is given once all the same."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.keyboard import at_terminal
from tests.lab import requirements
from tests.real.cli import Cli, finish, until

STUBBORN = "trap 'echo bye; exit 4' TERM; echo out; echo err >&2; while :; do sleep .05; done"


@pytest.fixture(scope="module")
def node(lab):
    if missing := requirements(podman=True):
        pytest.skip("; ".join(missing))
    yield lab.add_podman("pod")
    lab.retire("pod")


def inventory(lab, podman="podman"):
    node = lab.nodes["pod"]
    return (
        f"version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, image: lab/busybox}}\n"
        f"nodes:\n  pod: {{host: {node.host}, docker: {podman}}}\n"
    )


@pytest.fixture(scope="module")
def _made(lab, node):
    made = {}

    def make(name, podman="podman", **extra):
        if name not in made:
            made[name] = Cli(lab, name, inventory(lab, podman), **extra)
        return made[name]

    yield make
    for cli in made.values():
        cli.close()


@pytest.fixture
def agentless(_made):
    cli = _made("podman")
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus")] == ["free"] * 2)
    return cli


@pytest.fixture
def bob(_made, node):
    """Somebody else, whose podman is another user's: it knows nothing of the first one's containers."""
    return _made("podman-bob", node.other_podman(), LOGNAME="bob")


def inspect(node, task):
    found = node.sh(f"podman ps --all --quiet --no-trunc --filter label=agentless.task={task}").stdout.split()
    return json.loads(node.sh(f"podman inspect {' '.join(found)}").stdout)[0]


def state_of(cli, task):
    return cli.task(task)["state"]


def test_doctor_says_that_it_is_podman_that_hands_out_gpus(agentless):
    found = {check["check"]: (check["ok"], check["detail"]) for check in agentless.json("doctor")}
    assert found["docker"] == (True, "version podman 4.3.1")
    assert found["toolkit"] == (True, "podman can use GPUs")
    fixes = {check["check"]: check["fix"] for check in agentless.json("doctor")}
    assert "/etc/containers/containers.conf" in fixes["registry"]
    assert "docker" not in fixes["registry"].partition("\n")[2]
    assert {ok for ok, _ in found.values()} == {True}


@pytest.mark.slow
def test_doctor_starts_a_container_on_each_gpu_of_podman(agentless, node):
    found = {check["check"]: check for check in agentless.json("doctor", "--run")}
    assert [found[name]["verdict"] for name in ("run 0", "run 1")] == ["ok", "ok"], found
    assert node.sh("podman ps --all --quiet").stdout == ""
    assert node.sh("podman images --quiet agentless-doctor").stdout == ""


def test_the_disk_that_matters_is_that_of_podmans_storage(agentless, node):
    shown = until(lambda: (found := agentless.get("/v1/nodes/pod"))["disk_used_mib"] and found)
    assert shown["disk_path"] == node.sh("podman info --format '{{.Store.GraphRoot}}'").stdout.strip()


def test_a_task_has_its_own_gpu_its_limits_its_streams_and_its_exit_code(agentless, node):
    limits = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    task = agentless.submit(
        "pod::1", "--memory", "64M", "--cores", "0.5", "-e", "A=b c", "--", "sh", "-c",
        f'echo "$A" $LAB_GPU_0 $LAB_GPU_1; {limits}; echo err >&2; exit 3',
    )  # fmt: skip
    assert agentless("wait", task, code=3).code == 3
    logs = agentless("logs", task)
    assert (logs.out, logs.err) == (f"b c {node.gpu_uuids[1]}\n64000000\n50000\n", "err\n")


def test_what_wants_more_memory_than_it_may_have_is_killed_for_that(agentless):
    task = agentless.submit("pod", "--memory", "20M", "--", "sh", "-c", "a=x; while :; do a=$a$a; done")
    agentless("wait", task, code=137)
    assert state_of(agentless, task) == "killed_oom"
    assert not Path.home().joinpath("oom").exists()


@pytest.mark.slow
def test_a_task_is_followed_paused_resumed_and_stopped_with_grace(agentless):
    task = agentless.submit("pod::0", "--", "sh", "-c", STUBBORN)
    following = agentless.start("logs", "-f", task)
    assert following.stdout.readline() == "out\n"
    agentless("pause", task)
    assert state_of(agentless, task) == "paused"
    agentless("resume", task)
    assert state_of(agentless, task) == "running"
    agentless("stop", task)
    found = agentless.task(task)
    assert (found["state"], found["exit_code"]) == ("stopped", 4)
    done = finish(following)
    assert (done.out, done.err) == ("bye\n", "err\n")


def test_a_secret_is_in_the_task_and_in_no_argv(agentless, node):
    script = 'echo "${#TOKEN}"; exec sleep 60'
    submit = ("submit", "pod::0", "--secret-env", "TOKEN", "--", "sh", "-c", script)
    task = agentless(*submit, TOKEN="s3cr3t-t0k3n").out.strip()
    until(lambda: agentless("logs", task).out)
    assert agentless("logs", task).out == "12\n"
    assert "s3cr3t" not in node.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    found = inspect(node, task)
    assert "s3cr3t" not in json.dumps([found["Config"]["CreateCommand"], found["Config"]["Labels"], found["Name"]])


def test_a_shell_has_a_terminal_and_what_was_begun_in_it_ends_with_it(agentless, node):
    task = agentless.submit("pod", "--", "sleep", "3600")
    with at_terminal(["agentless", "shell", task], agentless.env) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"echo $((40 + 1))\n")
        keyboard.sees(b"41\r\n")
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9
    with at_terminal(
        ["agentless", "shell", task, "--", "sh", "-c", "echo begun; exec sleep 4321"], agentless.env
    ) as keyboard:
        keyboard.sees(b"begun")
        keyboard.process.send_signal(signal.SIGKILL)
        until(lambda: "4321" not in node.sh(f"podman top {inspect(node, task)['Id']} args").stdout)
    assert agentless("shell", task, "--", "cat", stdin="typed").out == "typed"


@pytest.mark.slow
def test_a_workflow_goes_on_when_the_state_is_deleted_unless_its_container_was_started_again(agentless, node, tmp_path):
    text = "jobs: {a: {command: sleep 300, stop_grace: 0}, b: {command: 'true', requires: [{a: ended}]}}"
    (tmp_path / "w.yaml").write_text(text)
    for again in (False, True):
        workflow = agentless("workflow", "run", str(tmp_path / "w.yaml")).out.strip()
        until(lambda workflow=workflow: state_of(agentless, workflow) == "running")
        agentless("controller", "stop")
        shutil.rmtree(agentless.state)
        if again:
            node.sh(f"podman restart --time 0 {inspect(node, workflow)['Id']}")
        said = agentless("recover", "--yes").err
        assert ("will go on: b" in said, "not started without you: b" in said) == (not again, again)
        agentless("kill", workflow)
        agentless("wait", "--batch", workflow, code=None)
        agentless("workflow", "rm", workflow, "--yes")


@pytest.mark.slow
def test_everything_comes_back_from_the_node_when_the_state_is_deleted(agentless):
    running = agentless.submit("pod::0", "--name", "kept", "--", "sleep", "300")
    ended = agentless.submit("pod", "--", "sh", "-c", "echo out; exit 4")
    agentless("wait", ended, code=4)
    agentless.kill_controller()
    shutil.rmtree(agentless.state)
    assert {task["id"] for task in agentless.json("recover", "--yes")} == {running, ended}
    assert (state_of(agentless, "kept"), state_of(agentless, ended)) == ("running", "failed")
    assert agentless("logs", ended).out == "out\n"
    agentless("kill", "kept")
    assert agentless("rm", ended).code == 0


@pytest.mark.slow
def test_a_controller_that_is_killed_in_a_launch_neither_loses_a_task_nor_starts_two(agentless, node):
    submit = agentless.start("submit", "pod::0", "--", "sh", "-c", "echo once; sleep 300")
    until(lambda: b"assigning" in (agentless.state / "state.json").read_bytes())
    agentless.kill_controller()
    finish(submit)
    (task,) = (task["id"] for task in agentless.json("ps"))
    until(lambda: state_of(agentless, task) == "running")
    assert node.sh("podman ps --all --quiet").stdout.count("\n") == 1
    assert agentless("logs", task).out == "once\n"


def test_a_gpu_that_another_users_podman_has_given_is_refused_by_the_node(agentless, bob, node):
    task = agentless.submit("pod::0", "--", "sleep", "300")
    assert bob.json("ps") == []
    said = bob("submit", "pod::0", "--no-queue", "--", "true", code=3).err
    assert f"GPU 0 is held by task {task} of {agentless.task(task)['owner'].replace('@', '_')}" in said
    bob("submit", "pod::1", "--wait", "--", "true")
    agentless("kill", task)
    bob("submit", "pod::0", "--wait", "--", "true")


@pytest.mark.slow
def test_what_ran_when_the_power_went_has_failed_and_never_runs_again(agentless, node):
    task = agentless.submit("pod::0", "--", "sleep", "300")
    node.reboot_podman()
    agentless.kill_controller()
    agentless("nodes")
    until(lambda: state_of(agentless, task) == "failed")
    found = agentless.task(task)
    assert (found["exit_code"], found["reason"]) == (255, "the node went down while it ran")
    agentless("submit", "pod::0", "--wait", "--", "true")
    assert node.sh("podman ps --quiet").stdout == ""


@pytest.mark.slow
def test_files_go_into_a_container_and_come_out_of_it(agentless, lab, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("hello\n")
    script = "read word < in/a && echo $word again > out && exec sleep 300"
    came = f"out:{tmp_path}/came"
    task = agentless.submit("pod::0", "--upload", f"{tmp_path}/in", "--output", came, "--", "sh", "-c", script)
    done = agentless("cp", f"{tmp_path}/in/a", f"{task}:/tmp/b")
    assert done.err == ""
    agentless("cp", f"{task}:/tmp/b", f"{tmp_path}/b")
    assert (tmp_path / "b").read_text() == "hello\n"
    agentless("cp", f"{task}:in/.", f"{tmp_path}/in/again")
    assert (tmp_path / "in/again/a").read_text() == "hello\n"
    agentless("kill", task)
    until((tmp_path / "came").exists)
    assert (tmp_path / "came").read_text() == "hello again\n"


def test_files_that_go_elsewhere_need_no_folder_to_work_in(agentless, tmp_path):
    (tmp_path / "a").write_text("hello\n")
    agentless("submit", "pod", "--upload", f"{tmp_path}/a:/data/a", "--wait", "--", "cat", "/data/a")


@pytest.mark.slow
def test_a_volume_keeps_what_a_task_has_written(agentless):
    agentless("submit", "pod", "--volume", "kept:/data", "--wait", "--", "sh", "-c", "echo 1 > /data/x")
    agentless("submit", "pod", "--volume", "kept:/data", "--wait", "--", "grep", "1", "/data/x")
    assert agentless("volume", "list").out.split()[5:7] == ["pod", "kept"]
    agentless("rm", *(task["id"] for task in agentless.json("ps", "--all") if "/data/x" in " ".join(task["command"])))
    agentless("volume", "rm", "kept", "--on", "pod", "--force")


@pytest.mark.slow
def test_a_vps_that_was_stopped_runs_again_with_its_files(agentless, node):
    task = agentless.json("vps", "create", "box", "pod::0")["id"]
    agentless("vps", "ssh", "box", "--", "echo kept >/file")
    agentless("vps", "stop", "box", "--grace", "2")
    agentless("vps", "start", "box")
    assert inspect(node, task)["State"]["Running"]
    assert agentless("vps", "ssh", "box", "--", "cat /file").out == "kept\n"
    agentless("vps", "rm", "box", "--force", "--yes")


def test_an_image_that_is_not_there_says_what_to_write(agentless):
    done = agentless("submit", "pod", "--image", "nosuch:1", "--wait", "--", "true", code=None)
    assert "add it to the name, such as docker.io/library/nosuch:1" in done.err
    assert "/etc/containers/registries.conf" in done.err


def test_a_process_in_its_container_is_no_stranger_on_its_gpu(agentless, node):
    task = agentless.submit("pod::0", "--", "sleep", "300")
    node.use_gpu(0, inspect(node, task)["State"]["Pid"], "sleep")
    until(lambda: agentless.gpu("pod::0")["processes"])
    gpu = agentless.gpu("pod::0")
    assert (gpu["state"], gpu["task"], "used by" in gpu["reason"]) == ("allocated", task, False)
