"""`agentless shell` in containers of a real engine: a terminal, and nothing that outlives it."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess

import pytest

from tests.background import ignoring
from tests.keyboard import WITHIN, at_terminal
from tests.real.cli import Cli, inventory_of, until

BEGUN = "echo begun; exec sleep 4321"


@pytest.fixture
def task(agentless):
    return agentless.submit("node1", "--", "sleep", "3600")


@contextlib.contextmanager
def at(agentless, task, *words):
    with at_terminal(["agentless", "shell", task, *words], agentless.env) as keyboard:
        yield keyboard


def inside(node, task):
    """The commands of what runs in the container."""
    lines = node.sh(f"docker top agentless-{task} -eo pid,args").stdout.splitlines()[1:]
    return [line.split(None, 1)[1] for line in lines]


def only_the_task_is_left(node, task):
    """In the container, and of the connection nothing but what keeps it warm."""
    until(lambda: inside(node, task) == ["sleep 3600"])
    until(lambda: not [command for _, command in node.leftovers() if "docker exec" in command])
    return True


def test_a_shell_has_a_terminal_its_keys_its_size_and_its_own_exit_code(agentless, node, task):
    with at(agentless, task) as keyboard:
        before = keyboard.modes()
        keyboard.sees(b"# ")
        keyboard.type(b"echo $((40 + 1))\n")
        keyboard.sees(b"41\r\n")
        keyboard.type(b"until [ \"$(stty size)\" = '33 101' ]; do :; done; echo size $((40 + 2))\n")

        def is_resized():
            # Again and again: Docker's client follows the size from a moment on after it has begun to show what comes.
            keyboard.resize(100, 33)
            keyboard.resize(101, 33)
            return b"size 42\r\n" in keyboard.output

        until(is_resized, WITHIN)
        keyboard.type(b"sleep 4321\n")
        until(lambda: "sleep 4321" in inside(node, task))
        keyboard.type(b"\x03")
        until(lambda: "sleep 4321" not in inside(node, task))
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9
        assert keyboard.modes() == before
    assert only_the_task_is_left(node, task)


def test_ctrl_p_is_a_key_like_any_other(agentless, task):
    with at(agentless, task, "--", "sh", "-c", "stty raw -echo; echo begun; head -c 3 | od -An -tx1") as keyboard:
        keyboard.sees(b"begun")
        keyboard.type(b"\x10\x11\x10")
        keyboard.sees(b"10 11 10")
        assert keyboard.ended() == 0


def test_without_a_terminal_input_and_both_streams_are_apart(agentless, node, task):
    done = agentless("shell", task, "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="a\n.\nb", code=7)
    assert (done.out, done.err) == ("a\n.\nb", "err\n")
    assert only_the_task_is_left(node, task)


def test_every_byte_passes_both_ways(agentless, task):
    data = bytes(range(256)) * 4000
    argv = ["agentless", "shell", task, "--", "cat"]
    ran = subprocess.run(argv, input=data, env=agentless.env, capture_output=True, timeout=90, check=True)
    assert ran.stdout == data


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_with_the_command_the_program_ends(agentless, node, task, number):
    with at(agentless, task, "--", "sh", "-c", BEGUN) as keyboard:
        keyboard.sees(b"begun")
        keyboard.process.send_signal(number)
        keyboard.ended()
        assert only_the_task_is_left(node, task)


def test_with_the_command_a_program_without_a_terminal_ends(agentless, node, task):
    process = agentless.start("shell", task, "--", "sh", "-c", BEGUN)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert only_the_task_is_left(node, task)


@pytest.mark.slow
def test_with_the_controller_its_programs_end(agentless, node, task):
    piped = agentless.start("shell", task, "--", "sh", "-c", BEGUN)
    assert piped.stdout.readline() == "begun\n"
    with at(agentless, task, "--", "sh", "-c", BEGUN) as keyboard:
        keyboard.sees(b"begun")
        agentless.kill_controller()
        assert (keyboard.ended(), piped.wait(60)) == (1, 1)
        keyboard.sees(b"the controller stopped and closed the terminal; the task keeps running")
    assert only_the_task_is_left(node, task)


def test_with_the_connection_its_programs_end(agentless, node, task):
    piped = agentless.start("shell", task, "--", "sh", "-c", BEGUN)
    assert piped.stdout.readline() == "begun\n"
    with at(agentless, task, "--", "sh", "-c", BEGUN) as keyboard:
        keyboard.sees(b"begun")
        node.kill_connections()
        assert (keyboard.ended(), piped.wait(60)) == (4, 4)
        keyboard.sees(b"node1 closed the connection")
    assert only_the_task_is_left(node, task)


@pytest.mark.slow
def test_a_program_that_will_not_hear_of_it_is_killed(agentless, node, task):
    with at(agentless, task, "--", "sh", "-c", f"trap '' HUP TERM; {BEGUN}") as keyboard:
        keyboard.sees(b"begun")
        keyboard.process.kill()
        assert only_the_task_is_left(node, task)


def test_what_was_told_to_stay_stays(agentless, node, task):
    script = f"(trap '' HUP; exec sleep 1234) >/dev/null 2>&1 & {BEGUN}"
    with at(agentless, task, "--", "sh", "-c", script) as keyboard:
        keyboard.sees(b"begun")
        until(lambda: "sleep 1234" in inside(node, task))
        keyboard.process.kill()
        until(lambda: sorted(inside(node, task)) == ["sleep 1234", "sleep 3600"])


def test_when_the_task_ends_so_does_its_shell(agentless, task):
    with at(agentless, task, "--", "sh", "-c", BEGUN) as keyboard:
        keyboard.sees(b"begun")
        agentless("kill", task)
        assert keyboard.ended() == 137


@pytest.mark.skipif(not shutil.which("sudo"), reason="no sudo (Debian's package sudo)")
def test_sudo_docker(lab, node):
    login = lab.add_user("typist", sudo=True)
    cli = Cli(lab, "typist", inventory_of(lab, node1=f"docker: sudo docker, user: {login}"))
    sized = f"until stty size | grep '24 80'; do sleep 0.1; done; {BEGUN}"
    try:
        task = cli.submit("node1", "--", "sleep", "3600")
        with at(cli, task, "--", "sh", "-c", sized) as keyboard:
            keyboard.sees(b"24 80")
            keyboard.sees(b"begun")
            keyboard.process.kill()
            assert only_the_task_is_left(node, task)
    finally:
        cli.close()


@pytest.mark.slow
def test_on_this_machine_keys_and_hang_ups_arrive_also_under_a_controller_that_ignores_signals(lab, node):
    """As one that `nohup`, cron or a script in the background has started."""
    inventory = "version: 1\ndefaults: {image: busybox}\nnodes: {node1: {connection: local}}\n"
    here = lab.env("here")
    cli = Cli(lab, "here", inventory, **{**node.env(), **here, "PATH": f"{node.dir}/bin:{here['PATH']}"})
    try:
        subprocess.run(ignoring(["agentless", "nodes"]), env=cli.env, cwd=lab.home, check=True, capture_output=True)
        task = cli.submit("node1", "--", "sleep", "3600")
        with at(
            cli, task, "--", "sh", "-c", "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.1; done"
        ) as keyboard:
            keyboard.sees(b"begun")
            keyboard.type(b"\x03")
            keyboard.sees(b"caught")
            assert keyboard.ended() == 3
        with at(cli, task, "--", "sh", "-c", BEGUN) as keyboard:
            keyboard.sees(b"begun")
            keyboard.process.kill()
            until(lambda: inside(node, task) == ["sleep 3600"])
    finally:
        cli.close()


def test_a_task_that_does_not_run_has_no_shell(agentless, task):
    agentless("pause", task)
    assert f"task {task} is paused; only running tasks can be entered" in agentless("shell", task, code=3).err
    agentless("kill", task)
    assert "is killed; only running tasks can be entered" in agentless("shell", task, code=3).err


@pytest.mark.slow
def test_an_engine_that_has_gone_is_a_sentence(agentless, node, task):
    node.stop_docker()
    done = agentless("shell", task, code=None)
    assert done.code in (1, 3)  # it may be known already that the task has ended
    assert done.err.startswith("agentless: ")
