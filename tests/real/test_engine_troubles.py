"""A node whose Docker, driver or network is in trouble says so, with the fix, and no other node suffers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.real.cli import Cli, containers, finish, inventory_of, until


@pytest.fixture(scope="module")
def with_keys(lab):
    """Edits the inventory of somebody so that node1 has these keys, and gives them."""
    cli = Cli(lab, "keys")

    def edit(keys):
        cli.write_inventory(inventory_of(lab, node1=keys))
        return cli

    yield edit
    cli.close()


def reason(cli, state="degraded"):
    """Why node1 is not online, once it is not, while node2 is."""
    node = until(lambda: (node := cli.node("node1"))["state"] == state and node)
    assert cli.node("node2")["state"] == "online"
    return node["reason"]


def serves(cli):
    """Whether a task with a GPU of node1 runs to its end."""
    return cli("submit", "node1::0", "--follow", "--", "echo", "ran").out == "ran\n"


# ---------------------------------------------------------------------- ways to call Docker


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("sudo"), reason="no sudo (Debian's package sudo)")
def test_sudo_docker(user, with_keys, node):
    """Secrets get through it too."""
    cli = with_keys(f"docker: sudo docker, user: {user('admin', sudo=True)}")
    assert cli("submit", "node1::0", "-s", "TOKEN=hush", "--follow", "--", "sh", "-c", "echo $TOKEN").out == "hush\n"


@pytest.mark.skipif(not shutil.which("sudo"), reason="no sudo (Debian's package sudo)")
def test_sudo_that_the_user_may_not_use(user, with_keys):
    cli = with_keys(f"docker: sudo docker, user: {(login := user('nobody'))}")
    assert reason(cli) in (
        f"{login} has no sudo rights for docker on node1; add a sudoers rule, or add {login} to the docker group",
        "sudo on node1 requires a password; add NOPASSWD: /usr/bin/docker to its sudoers rule",
    )


def test_a_user_of_the_docker_group(user, with_keys):
    assert serves(with_keys(f"user: {user('member', docker_group=True)}"))


def test_a_user_who_is_not_in_the_docker_group(user, with_keys):
    cli = with_keys(f"user: {(login := user('nobody'))}")
    assert (
        f"{login} has no permission to use Docker on node1; on the node, run: sudo usermod -aG docker {login}"
        in reason(cli)
    )


def test_a_socket_of_its_own(with_keys, node):
    """As a rootless engine has one."""
    assert serves(with_keys(f'docker: "docker --host unix://{node.docker_socket}"'))


def test_a_socket_at_which_nobody_listens(with_keys, node):
    said = reason(with_keys('docker: "docker --host unix:///run/user/4711/docker.sock"'))
    assert said == (
        "the Docker daemon on node1 is not running or listens elsewhere than unix:///run/user/4711/docker.sock; "
        "to see how to start it, run: agentless doctor node1"
    )


@pytest.mark.parametrize(
    ("docker", "command"), [("dockerr", "dockerr"), ("/opt/no/docker", "docker"), ("env PATH=/ docker", "docker")]
)
def test_no_docker_command(with_keys, docker, command):
    assert reason(with_keys(f"docker: {docker}")).startswith(f"no {command} command on node1; install ")


# ---------------------------------------------------------------------- Docker goes away


@pytest.mark.slow
def test_a_daemon_that_does_not_run(agentless, node):
    node.stop_docker()
    assert "the Docker daemon on node1 is not running or listens elsewhere; to see how to start it, run: " in reason(
        agentless
    )


def test_a_submit_to_a_daemon_that_does_not_run(agentless, node):
    node.stop_docker()
    reason(agentless)
    said = agentless("submit", "node1::0", "--no-queue", "--", "true", code=3).err
    assert "node1 is degraded: the Docker daemon on node1 is not running or listens elsewhere" in said


def test_a_submit_in_the_moment_in_which_the_daemon_dies(agentless, node):
    """The launch itself finds out, and the GPU is not lost with it."""
    node.kill_docker()
    done = agentless("submit", "node1::0", "--no-queue", "--", "true", code=None)
    assert done.code in (3, 4)
    assert "the Docker daemon on node1 is not running or listens elsewhere" in done.err
    node.start_docker()
    agentless.settle()


@pytest.mark.slow
def test_a_daemon_that_comes_back_is_used_again(agentless, node):
    node.stop_docker()
    reason(agentless)
    node.start_docker()
    until(lambda: agentless.node("node1")["state"] == "online")
    assert serves(agentless)


@pytest.mark.slow
def test_a_power_cut_ends_a_task_with_its_exit_code(agentless, node):
    """What Docker says after its return is what counts, and the GPU is free again."""
    task = agentless.submit("node1::0", "--", "sleep", "300")
    node.kill_docker()
    node.start_docker()
    ended = until(lambda: (task_ := agentless.task(task))["ended_at"] and task_)
    assert (ended["state"], ended["exit_code"]) == ("failed", 255)
    agentless.settle()


def test_a_container_that_somebody_removes(agentless, node):
    task = agentless.submit("node1::0", "--", "sleep", "300")
    node.sh(f"docker rm -f agentless-{task}")
    until(lambda: agentless.task(task)["ended_at"])
    agentless.settle()


@pytest.mark.parametrize("numbers", [(5, 31), pytest.param((2, 12, 16), marks=pytest.mark.slow)])
def test_a_user_who_may_have_too_few_processes(user, with_keys, node, numbers):
    """With some a shell starts and with some more a sample comes: doctor has what to do in each case."""
    cli = with_keys(f"user: {user('member', docker_group=True)}")
    try:
        for few in numbers:
            (node.dir / "home/.bashrc").write_text(f"ulimit -u {few}\n")
            node.kill_connections()
            words = f"limits the login to {few} processes, but agentless needs at least 32; raise ulimit -u"
            until(lambda words=words: words in cli("doctor", "node1", code=None).out)
    finally:
        (node.dir / "home/.bashrc").write_text("")


# ---------------------------------------------------------------------- Docker cannot hand out GPUs


@pytest.fixture
def hookless(agentless, node):
    """Restarts the engine of node1; at first as it was before the toolkit was installed."""
    hook = node.dir / "bin/nvidia-container-runtime-hook"

    def is_down():
        return "is not running" in agentless.node("node1")["reason"]

    def restart(*, with_toolkit):
        node.stop_docker()
        until(is_down)
        if not with_toolkit:
            hook.rename(node.dir / "hook")
        node.start_docker()
        if not with_toolkit:
            (node.dir / "hook").rename(hook)
        until(lambda: not is_down())

    restart(with_toolkit=False)
    yield restart
    restart(with_toolkit=True)
    agentless("nodes", "resume", "node1")


@pytest.mark.slow
def test_a_node_that_cannot_hand_out_gpus_keeps_no_task(agentless, node, hookless):
    """It is degraded by the first launch that fails, and all tasks run on the other one in their first try."""
    assert all(check["ok"] for check in agentless.json("doctor"))
    first = agentless.submit("1x", "--no-queue", "--retries", "2", "--", "true")
    swept = [agentless.submit("1x", "--retries", "2", "--", "true") for _ in range(4)]
    tasks = [agentless.json("wait", task)[0] for task in (first, *swept)]
    assert {(task["state"], task["node"], task["attempt"]) for task in tasks} == {("completed", "node2", 1)}
    assert reason(agentless).startswith("Docker on node1 cannot use NVIDIA GPUs; install nvidia-container-toolkit")
    assert not set(containers(node)) & {f"agentless-{task['id']}" for task in tasks}
    (toolkit,) = [check for check in agentless.json("doctor", code=1) if not check["ok"]]
    assert (toolkit["node"], toolkit["check"]) == ("node1", "toolkit")


@pytest.mark.slow
def test_who_names_it_is_refused_in_words_or_waits_for_its_repair(agentless, hookless):
    said = agentless("submit", "node1::0", "--no-queue", "--", "true", code=3).err
    assert "Docker on node1 cannot use NVIDIA GPUs" in said
    task = agentless.submit("node1::0", "--retries", "1", "--", "true")
    assert agentless.task(task)["state"] == "pending"
    hookless(with_toolkit=True)
    ended = agentless.json("wait", task)[0]
    assert (ended["state"], ended["attempt"], ended["node"]) == ("completed", 1, "node1")
    assert agentless.node("node1")["state"] == "online"


def test_what_a_hook_says_last_is_what_is_told(agentless, node):
    """Docker, containerd, runc and the hook's own first line come before it: 300 characters without the cause."""
    hook = node.dir / "bin/nvidia-container-runtime-hook"
    before = hook.read_text()
    said = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.6, please update your driver"
    hook.write_text(f"#!/bin/sh\nprintf \"Auto-detected mode as 'legacy'\\n{said}\\n\" >&2\nexit 1\n")
    try:
        refused = agentless("submit", "node1::0", "--", "true", code=1).err
        assert "the image requires cuda>=12.6, but the NVIDIA driver on node1 does not support it" in refused
        hook.write_text(hook.read_text().replace("requirement error", "ldcache error"))
        cause = "nvidia-container-cli: ldcache error: unsatisfied condition: cuda>=12.6, please update your driver"
        error = agentless("submit", "node1::0", "--", "true", code=1).err
        assert error.startswith(f"agentless: node1: {cause} (task ")
        assert agentless.node("node1")["state"] == "online"
    finally:
        hook.write_text(before)


# ---------------------------------------------------------------------- Docker cannot limit


@pytest.fixture
def unlimited(agentless, node):
    """node1, whose engine sees neither the control groups memory and cpuset nor the freezer."""
    missing = [
        control for control in ("memory", "cpuset", "freezer") if not Path(f"/sys/fs/cgroup/{control}").is_mount()
    ]
    if missing:
        pytest.skip("this machine has no control groups of version 1, of which single ones can be hidden")

    def restart(*without):
        node.stop_docker()
        reason(agentless)
        node.start_docker(without)
        until(lambda: agentless.node("node1")["state"] == "online")

    restart("memory", "cpuset", "freezer")
    yield node
    restart()


@pytest.mark.slow
def test_a_limit_that_docker_would_leave_out_with_a_mere_warning_is_refused(agentless, unlimited):
    """And who does not insist on the node is limited on the other one."""
    said = agentless("submit", "node1::0", "--memory", "64M", "--", "true", code=3).err
    assert "Docker on node1 cannot limit memory: the memory control group is missing; omit --memory" in said
    assert containers(unlimited) == []
    task = agentless.submit("1x", "--memory", "64M", "--", "true")
    assert agentless.json("wait", task)[0]["node"] == "node2"
    # Without a limit it runs there.
    agentless("submit", "node1::0", "--wait", "--", "true")
    (limits,) = [check for check in agentless.json("doctor") if check["check"] == "limits"]
    assert (limits["node"], limits["verdict"]) == ("node1", "warning")
    assert limits["detail"].startswith("Docker cannot pin to a NUMA node, limit memory: missing control groups: ")


@pytest.mark.slow
def test_a_pause_that_docker_cannot_do_is_a_sentence_and_the_task_runs_on(agentless, unlimited):
    task = agentless.submit("node1::0", "--", "sleep", "300")
    said = agentless("pause", task, code=1).err
    assert said == (
        "agentless: Docker on node1 cannot pause: containers have no freezer control group there; "
        "stop the task instead\n"
    )
    assert agentless.task(task)["state"] == "running"


# ---------------------------------------------------------------------- the driver


@pytest.mark.slow
def test_a_driver_that_hangs_degrades_its_node_only(agentless, node):
    """And the node is refused with that reason, while the other one serves."""
    node.fault("hang")
    said = reason(agentless)
    assert said.startswith("nvidia-smi did not answer within 10 s: the driver hangs; ")
    refused = agentless("submit", "node1::0", "node2::0", "--no-queue", "--wait", "--", "true", code=3)
    assert f"agentless: node1::0: node1 is degraded: {said}\n" in refused.err
    assert agentless.json("ps", "--all")[-1]["target"] == "node2::0"


def test_a_driver_that_answers_again_is_used_again(agentless, node):
    node.fault("exit 9\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
    assert reason(agentless).startswith("the NVIDIA driver is not loaded; reboot the node, or ")
    node.fault(None)
    until(lambda: agentless.node("node1")["state"] == "online")
    assert serves(agentless)


def test_a_node_without_gpus_runs_what_needs_none(agentless, node):
    node.set_gpus(0)
    until(lambda: agentless.node("node1")["gpus"] == 0)
    agentless("submit", "node1", "--wait", "--", "true")
    assert "node1 has no GPU 0 and no others" in agentless("submit", "node1::0", "--", "true", code=3).err


# ---------------------------------------------------------------------- the network


def test_a_node_that_cannot_be_reached(agentless, node):
    """Exit code 4, and the other node serves."""
    node.stop_sshd()
    said = reason(agentless, "offline")
    done = agentless("submit", "node1::0", "node2::0", "--wait", "--", "true", code=4)
    assert re.search(r"^agentless: node1 \(.*\) cannot be reached: ", done.err, re.MULTILINE)
    assert said
    assert agentless.json("ps", "--all")[-1]["target"] == "node2::0"


def test_a_link_that_breaks_ends_no_task(agentless, node):
    task = agentless.submit("node1::0", "--", "sh", "-c", "until [ -e /go ]; do sleep .05; done; echo end; exit 3")
    node.kill_connections()
    assert agentless.task(task)["state"] == "running"
    node.sh(f"docker exec agentless-{task} touch /go")
    assert agentless("wait", task, code=3).code == 3
    assert agentless("logs", task).out == "end\n"


def test_a_cable_that_is_out_for_a_moment(agentless, node):
    """A submit in that moment waits, and starts its task once."""
    node.cut()
    submit = agentless.start("submit", "node1::0", "--", "sleep", "60")
    until(lambda: agentless.json("ps"))
    node.restore()
    done = finish(submit)
    assert done.code == 0, done
    assert containers(node) == [f"agentless-{done.out.strip()}"]


@pytest.mark.slow
def test_a_task_that_ends_while_its_node_is_away(agentless, node):
    task = agentless.submit("node1::0", "--", "sh", "-c", "until [ -e /go ]; do sleep .05; done; exit 3")
    node.stop_sshd()
    node.sh(f"docker exec agentless-{task} touch /go; docker wait agentless-{task}")
    assert agentless.task(task)["state"] == "running"
    node.start_sshd()
    agentless("wait", task, code=3)


# ---------------------------------------------------------------------- doctor


def test_doctor_of_healthy_nodes(agentless):
    found = agentless.json("doctor", "node2", "node1", "node2")
    names = [check["check"] for check in found]
    first = names[: len(names) // 2]
    assert {check["ok"] for check in found} == {True}
    assert [check for check in first if check in ("reach", "docker", "nvidia", "toolkit")] == [
        *("reach", "docker", "nvidia", "toolkit")
    ]
    assert names == first * 2
    assert [check["node"] for check in found] == ["node2"] * len(first) + ["node1"] * len(first)


def test_doctor_finds_what_is_missing(agentless, node):
    """Here NVIDIA's container toolkit, of which the lab has only the hook."""
    hook = node.dir / "bin/nvidia-container-runtime-hook"
    hook.rename(node.dir / "hook")
    try:
        found = agentless.json("doctor", code=1)
    finally:
        (node.dir / "hook").rename(hook)
    ((name, check, detail),) = [(c["node"], c["check"], c["detail"]) for c in found if not c["ok"]]
    assert (name, check) == ("node1", "toolkit")
    assert "cannot give GPUs to containers; install nvidia-container-toolkit" in detail


def test_doctor_names_the_first_thing_that_is_wrong(agentless, node):
    node.stop_sshd()
    name, tcp, *others = agentless.json("doctor", "node1", code=1)
    assert [(check["check"], check["ok"]) for check in (name, tcp)] == [("name", True), ("tcp", False)]
    assert {check["ok"] for check in others if check["check"] != "reach"} == {None}
