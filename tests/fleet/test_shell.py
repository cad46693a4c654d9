"""`agentless shell`: a terminal in the container of a task, whoever ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from agentless import Cluster, paths
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.demo.fleet import NodePlan
from agentless.formats.frames import frame
from agentless.model.terminal import Size
from tests.fleet.client import PATIENCE
from tests.fleet.inhabited import end_controller, inhabited
from tests.fleet.world import World
from tests.keyboard import Keyboard, at_terminal

AGENTLESS = [sys.executable, "-m", "agentless"]
WAITS = ("sh", "-c", "echo begun $$; exec sleep 600")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("shell"), [NodePlan("n1", 1)]) as world:
        yield world


@pytest.fixture
def task(world: World) -> Iterator[str]:
    cluster = Cluster()
    task = cluster.submit("sleep", "600", target="n1")
    yield task.id
    cluster.task(task.id).remove(force=True)


@pytest.fixture
def client(world: World) -> Client:
    return Client(paths.state_dir(), world.fleet.inventory)


def run(task: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [*AGENTLESS, "shell", task, *words]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)


@contextlib.contextmanager
def at(task: str, *words: str) -> Iterator[Keyboard]:
    with at_terminal([*AGENTLESS, "shell", task, *words], dict(os.environ, PS1="> ")) as keyboard:
        yield keyboard


@contextlib.contextmanager
def waiting(task: str, *words: str) -> Iterator[tuple[Keyboard, int]]:
    """A program that has begun, and its PID."""
    with at(task, "--", *(words or WAITS)) as keyboard:
        yield keyboard, begun(keyboard)


def begun(keyboard: Keyboard) -> int:
    start = keyboard.sees(b"begun ")
    return int(keyboard.output[start : keyboard.sees(b"\n", start)])


def ends(pid: int) -> bool:
    """Wait for the end of a process that is not ours."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(pidfd):
        return bool(select.select([pidfd], [], [], PATIENCE)[0])


# ---------------------------------------------------------------------------------------------------- on a terminal


def test_a_shell_has_a_terminal_and_its_own_exit_code(task):
    with at(task) as keyboard:
        keyboard.type(b"test -t 0 && test -t 1 && test -t 2 && echo all of $((40 + 2))\n")
        keyboard.sees(b"all of 42\r\n")
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9


def test_the_terminal_has_the_size_of_the_window_and_follows_it(task):
    with at(task, "--", "sh", "-c", "stty size; trap 'stty size' WINCH; while :; do sleep 0.1; done") as keyboard:
        keyboard.sees(b"24 80\r\n")
        keyboard.resize(101, 33)
        keyboard.sees(b"33 101\r\n")


def test_ctrl_c_goes_to_the_program(task):
    with at(task, "--", "sh", "-c", "trap 'echo caught; exit 3' INT; echo begun; sleep 600 & wait") as keyboard:
        keyboard.sees(b"begun")
        keyboard.type(b"\x03")
        keyboard.sees(b"caught")
        assert keyboard.ended() == 3


def test_every_key_arrives_as_it_is(task):
    # Docker keeps Ctrl-P to itself, to see whether Ctrl-Q follows.
    with at(task, "--", "sh", "-c", "stty raw -echo; echo begun; head -c 9 | od -An -tx1") as keyboard:
        keyboard.sees(b"begun")
        keyboard.type(b"\x10\x11\x03\x04\x1a\x1c\xff\xc3\xa9")
        keyboard.sees(b"10 11 03 04 1a 1c ff c3 a9")


def test_afterwards_the_terminal_is_as_it_was(task):
    with at(task, "--", "sh", "-c", "echo begun; read x; stty raw -echo") as keyboard:
        before = keyboard.modes()
        keyboard.sees(b"begun")
        assert keyboard.modes() != before
        keyboard.type(b"\n")
        assert keyboard.ended() == 0
        assert keyboard.modes() == before


# ------------------------------------------------------------------------------------------------- without a terminal


def test_without_a_terminal_input_and_both_streams_are_apart(task):
    script = "test -t 0 || test -t 1 || echo no terminal; cat; echo err >&2; exit 7"
    done = run(task, "--", "sh", "-c", script, stdin=b"a\n.\nb")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"no terminal\na\n.\nb", b"err\n")


def test_every_byte_passes_both_ways(task):
    data = bytes(range(256)) * 2000
    assert run(task, "--", "cat", stdin=data).stdout == data


def test_a_script_is_run_by_the_shell(task):
    assert run(task, stdin=b"echo $((40 + 2))\nexit 4\n").stdout == b"42\n"


def test_a_command_that_is_not_there(task):
    done = run(task, "--", "no-such-program")
    assert done.returncode == 127
    assert b"no-such-program: not found" in done.stderr


def test_words_stay_words(task):
    words = ("a b", "'", '"$HOME"', "\\0101", "é\n;exit 9", "", "*")
    assert run(task, "--", "printf", "%s|", *words).stdout.decode() == "".join(f"{word}|" for word in words)


# -------------------------------------------------------------------------------------------- whoever ends it, it ends


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_with_the_command_the_program_ends(task, number):
    with waiting(task) as (keyboard, pid):
        keyboard.process.send_signal(number)
        assert ends(pid)


def test_a_program_that_will_not_hear_of_it_is_killed(task):
    with waiting(task, "sh", "-c", "trap '' HUP TERM; echo begun $$; while :; do sleep 1; done") as (keyboard, pid):
        keyboard.process.kill()
        assert ends(pid)


def test_what_was_told_to_stay_stays(task):
    script = "nohup sleep 600 >/dev/null 2>&1 & echo stays $!; echo begun $$; exec sleep 600"
    with waiting(task, "sh", "-c", script) as (keyboard, pid):
        stays = int(keyboard.output.partition(b"stays ")[2].split()[0])
        keyboard.process.kill()
        assert ends(pid)
        os.kill(stays, 0)


def test_when_it_is_terminated_the_terminal_is_as_it_was(task):
    with at(task, "--", *WAITS) as keyboard:
        before = keyboard.modes()
        begun(keyboard)
        keyboard.process.terminate()
        assert keyboard.ended() == 128 + signal.SIGTERM
        assert keyboard.modes() == before


def test_it_can_be_terminated_while_the_program_takes_no_keys(task):
    with at(task, "--", "sh", "-c", "stty raw -echo; echo begun; exec sleep 600") as keyboard:
        keyboard.sees(b"begun")
        typing = threading.Thread(target=keyboard.type, args=(b"x" * 8_000_000,), daemon=True)
        typing.start()
        typing.join(2)
        assert typing.is_alive(), "they were all taken"
        keyboard.process.terminate()
        assert keyboard.ended() == 128 + signal.SIGTERM
        while typing.is_alive():
            keyboard.forget()
            typing.join(0.001)


def test_when_the_task_ends_so_does_its_shell(task):
    with waiting(task) as (keyboard, _):
        Cluster().task(task).kill()
        assert keyboard.ended() == 137


def test_when_the_controller_dies_it_says_so_and_leaves_the_terminal_as_it_was(task):
    with at(task, "--", "sh", "-c", "printf '\\033[?1049h'; echo begun $$; exec sleep 600") as keyboard:
        before = keyboard.modes()
        pid = begun(keyboard)
        end_controller(signal.SIGKILL)
        assert keyboard.ended() == 1
        keyboard.sees(b"the controller stopped and closed the terminal; the task keeps running")
        assert b"\x1b[?1049l" in keyboard.output  # back from the alternate screen
        assert keyboard.modes() == before
        assert ends(pid)


def test_what_a_killed_program_has_done_to_the_terminal_is_undone(task):
    with waiting(task, "sh", "-c", "printf '\\033[?1049h\\033[?1000h'; echo begun $$; exec sleep 600") as (
        keyboard,
        pid,
    ):
        os.kill(pid, signal.SIGKILL)
        assert keyboard.ended() == 137
        keyboard.sees(b"\x1b[?1049l", keyboard.output.rfind(b"\x1b[?1049h"))
        keyboard.sees(b"\x1b[?1000l", keyboard.output.rfind(b"\x1b[?1000h"))


def test_when_the_link_breaks_it_says_so_and_the_program_ends(world, task):
    with waiting(task) as (keyboard, pid):
        world.do(world.nodes["n1"].cut)
        try:
            assert keyboard.ended() == 4
            keyboard.sees(b"n1 closed the connection")
            assert ends(pid)
        finally:
            world.do(world.nodes["n1"].restore)


# ------------------------------------------------------------------------------------------------------------ refusals


def test_a_task_that_does_not_run_has_no_shell(task):
    ended = Cluster().submit("true", target="n1").wait()
    done = run(ended.id)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f"agentless: task {ended.id} is completed; only running tasks can be entered\n"


def test_a_paused_task_has_no_shell_until_it_goes_on(task):
    Cluster().task(task).pause()
    assert run(task).returncode == 3
    Cluster().task(task).resume()
    assert run(task).returncode == 0


def test_a_node_that_does_not_answer_gives_no_shell(world, task):
    world.do(world.nodes["n1"].cut)
    try:
        done = run(task)
    finally:
        world.do(world.nodes["n1"].restore)
    assert done.returncode == 4
    assert done.stderr.count(b"cannot be reached") == 1


def test_a_command_that_is_too_long_is_refused_before_it_is_sent(task):
    done = run(task, "--", "echo", "x" * 20_000)
    assert done.returncode == 2
    assert b"the command is too long" in done.stderr


# -------------------------------------------------------------------------------------------------------- from Python


def test_it_is_told_who_opened_a_shell_and_not_what_was_typed(client, task):
    client._owner = "ann"
    with client.terminal(task, ("cat",), Size(80, 24)) as terminal:
        terminal.write(b"hunter2\n")
        assert b"hunter2" in terminal.read()
    found = [event for event in client.get(f"/v1/tasks/{task}/events") if event["event"] == "shell-opened"]
    assert [event["cause"] for event in found] == ["agentless shell, by ann"]
    assert "hunter2" not in str(found)


def test_a_terminal_is_closed_by_another_thread(client, task):
    terminal = client.terminal(task, WAITS, Size(80, 24))
    pid = int(terminal.read().split()[1])
    closer = threading.Timer(0, terminal.close)
    closer.start()
    assert (terminal.read(), terminal.exit_code) == (None, None)
    closer.join()
    assert ends(pid)


def test_its_exit_code_is_known_after_all_that_it_has_printed(client, task):
    with client.terminal(task, ("sh", "-c", "head -c 3000000 /dev/zero; exit 5")) as terminal:
        assert sum(map(len, iter(terminal.read, None))) == 3_000_000
        assert terminal.exit_code == 5


@pytest.mark.parametrize(("kind", "data"), [(9, b"?"), (4, b"wide")])
def test_what_cannot_be_meant_ends_a_terminal_with_a_sentence(client, task, kind, data):
    with client.terminal(task, WAITS, Size(80, 24)) as terminal:
        pid = int(terminal.read().split()[1])
        terminal._send(frame(kind, data))
        with pytest.raises(RequestFailed, match=r"unexpected frame of kind 9|is not a terminal size") as caught:
            terminal.read()
        assert caught.value.exit_code == 2
        assert ends(pid)


def test_a_reader_is_told_what_broke_it_off(world, client, task):
    with client.terminal(task, WAITS) as terminal:
        terminal.read()
        world.do(world.nodes["n1"].cut)
        try:
            with pytest.raises(RequestFailed, match="n1 closed the connection"):
                terminal.read()
        finally:
            world.do(world.nodes["n1"].restore)


def test_a_controller_that_leaves_ends_its_terminals(client, task):
    with client.terminal(task, WAITS, Size(80, 24)) as terminal:
        pid = int(terminal.read().split()[1])
        end_controller(signal.SIGTERM)
        with pytest.raises(RequestFailed, match="the controller stopped and closed the terminal"):
            terminal.read()
        assert ends(pid)
    assert "Traceback" not in (paths.state_dir() / "controller.log").read_text()
