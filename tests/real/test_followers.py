"""Who follows a task goes on at the last line when a link or the controller breaks, and ends as the task does."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.keyboard import at_terminal
from tests.real.cli import WAIT, Cli, finish, inventory_of, until

COUNTS = "i=0; until [ -e /end ]; do i=$((i + 1)); echo $i; echo $i >&2; usleep 5000; done; exit 7"
"""Numbers on both streams until somebody says that it is enough."""
LONG = "x" * 20_000
"""More than the engine takes for one piece of a line."""


@pytest.fixture(scope="module")
def agentless(lab):
    cli = Cli(lab, "followers").settle()
    yield cli
    cli.close()


class Follower:
    """A command whose two streams go to files."""

    def __init__(self, cli: Cli, folder: Path, *words: str) -> None:
        folder.mkdir()
        self._files = folder / "out", folder / "err"
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self._process = subprocess.Popen(
                ["agentless", *words], env=cli.env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def lines(self, stream: int) -> list[str]:
        return self._files[stream - 1].read_text().splitlines()

    def numbers(self, stream: int) -> list[int]:
        """What the task printed, whatever else is said on that stream."""
        return [int(line.split()[-1]) for line in self.lines(stream) if line.split()[-1].isdecimal()]

    def goes_on(self) -> None:
        """Wait until more has come."""
        for stream in (1, 2):
            before = len(self.numbers(stream))
            until(lambda stream=stream, before=before: len(self.numbers(stream)) > before + 5)

    def ended(self) -> int:
        return self._process.wait(WAIT)


def restart_sshd(cli, node):
    node.stop_sshd()
    until(lambda: cli.node("node1")["state"] == "offline")
    time.sleep(0.3)  # what is printed meanwhile has to come as well
    node.start_sshd()


@pytest.mark.slow
def test_followers_go_on_over_an_sshd_and_a_controller_that_are_restarted(agentless, node, tmp_path):
    """No line is lost and none comes twice, on either stream, and the exit code is the task's."""
    submit = Follower(
        agentless, tmp_path / "submit", "submit", "-f", "--name", "counts", "node1", "--", "sh", "-c", COUNTS
    )
    submit.goes_on()
    last = Follower(agentless, tmp_path / "last", "logs", "-f", "--tail", "1", "counts")
    timed = Follower(agentless, tmp_path / "timed", "logs", "-f", "--timestamps", "counts")
    everyone = (submit, last, timed)
    for breaks in (lambda: restart_sshd(agentless, node), node.kill_connections, agentless.kill_controller):
        for each in everyone:
            each.goes_on()
        breaks()
    for each in everyone:
        each.goes_on()
    node.sh(f"docker exec agentless-{agentless.task('counts')['id']} touch /end")
    assert [each.ended() for each in everyone] == [7, 0, 0]
    for stream in (1, 2):
        printed = submit.numbers(stream)
        assert printed == list(range(1, len(printed) + 1))
        assert timed.numbers(stream) == printed
        tail = last.numbers(stream)
        assert tail == list(range(printed[-1] + 1 - len(tail), printed[-1] + 1))
    (said,) = {line for line in submit.lines(2) if "keeps running" in line}
    assert said.startswith("agentless: node1")
    assert said.endswith("its output continues here when the node answers")


@pytest.mark.slow
def test_a_run_goes_on_in_the_middle_of_a_line(agentless, node, tmp_path):
    script = (
        f"i=0; until [ -e /end ]; do i=$((i + 1)); printf '%s' {LONG}; echo \" $i\"; echo $i >&2; usleep 20000; done"
    )
    run = Follower(agentless, tmp_path / "run", "run", "--name", "long", "--node", "node1", "--", "sh", "-c", script)
    for _ in range(3):
        run.goes_on()
        node.kill_connections()
    run.goes_on()
    node.sh(f"docker exec agentless-{agentless.task('long')['id']} touch /end")
    assert run.ended() == 0
    numbers = run.numbers(1)
    assert run.lines(1) == [f"{LONG} {number}" for number in range(1, len(numbers) + 1)]


@pytest.mark.slow
def test_a_task_that_ends_while_its_node_is_away_is_followed_to_its_end(agentless, node, tmp_path):
    follower = Follower(
        agentless, tmp_path / "ends", "submit", "-f", "--name", "ends", "node1", "--", "sh", "-c", COUNTS
    )
    follower.goes_on()
    task = agentless.task("ends")["id"]
    node.stop_sshd()
    until(lambda: agentless.node("node1")["state"] == "offline")
    node.sh(f"docker exec agentless-{task} touch /end; docker wait agentless-{task}")
    node.start_sshd()
    assert follower.ended() == 7
    printed = node.sh(f"docker logs agentless-{task} 2>/dev/null").stdout
    assert "\n".join(follower.lines(1)) + "\n" == printed


def test_a_shell_cannot_go_on_and_says_how_to_open_another_one(agentless, node):
    task = agentless.submit("node1", "--", "sleep", "60")
    shell = agentless.start("shell", task, "--", "sh", "-c", "echo begun; sleep 60")
    assert shell.stdout.readline() == "begun\n"
    node.kill_connections()
    done = finish(shell)
    assert done.code == 4
    assert "the task keeps running. To open another one: agentless shell " + task in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_a_stop_that_cannot_reach_the_node_says_that_it_is_done_later(agentless, node):
    task = agentless.submit("node1", "--", "sleep", "60")
    node.stop_sshd()
    until(lambda: agentless.node("node1")["state"] == "offline")
    done = agentless("stop", task, code=4)
    assert f"agentless ends task {task} when node1 answers" in done.err
    assert "as of " in agentless.task(task)["reason"]
    assert agentless("shell", task, "--", "true", code=4).err.count("cannot be reached") == 1
    node.start_sshd()
    until(lambda: agentless.task(task)["state"] == "stopped")


def test_a_stop_says_what_it_waits_for(agentless):
    task = agentless.submit("node1", "--stop-grace", "3s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    done = agentless("stop", task)
    assert done.err == f"Stopping task {task}: SIGTERM sent, SIGKILL after 3s\n"


@pytest.mark.slow
def test_a_task_of_an_engine_that_does_not_answer_says_as_of_when_it_is(agentless, node):
    task = agentless.submit("node1", "--", "sleep", "60")
    node.kill_docker()
    reason = until(lambda: agentless.task(task)["state"] == "running" and agentless.task(task)["reason"])
    assert reason.startswith(f"as of {time.strftime('%Y-%m-%d')}")
    assert "node1" in reason
    assert reason in " ".join(agentless("ps").out.split())


# ---------------------------------------------------------------------- an engine that is slow, or has no logs


@pytest.fixture
def odd(lab, tmp_path):
    """Somebody for whom node1's engine reads no log, and pulls when the file `go` is there."""
    program = tmp_path / "docker"
    script = (
        'case $1 in logs) echo "no such driver" >&2; exit 1 ;; pull) until [ -e "$0.go" ]; do sleep 0.05; done ;; esac'
    )
    program.write_text(f'#!/bin/sh\n{script}\nexec docker "$@"\n')
    program.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    cli = Cli(lab, "odd", inventory_of(lab, node1=f"docker: {program}")).settle()
    yield cli
    cli.close()


@pytest.mark.slow
def test_a_task_that_cannot_be_followed_ends_the_command_with_its_own_code(odd):
    done = odd("submit", "-f", "node1", "--", "sh", "-c", "sleep 1; exit 5", code=5)
    assert "Cannot show the output of task" in done.err


@pytest.mark.slow
def test_of_two_equal_submits_each_shows_its_own_progress(odd, tmp_path):
    odd.get("/v1/nodes")
    words = ("agentless", "submit", "node1", "--pull", "always", "--wait")
    with (
        at_terminal([*words, "--image", "lab/one:1", "--", "true"], odd.env) as one,
        at_terminal([*words, "--image", "lab/two:1", "--", "true"], odd.env) as two,
    ):
        one.sees(b"pulling lab/one:1")
        two.sees(b"pulling lab/two:1")
        (tmp_path / "docker.go").touch()
        assert (one.ended(), two.ended()) == (1, 1)
        assert b"pulling lab/two:1" not in one.output
        assert b"pulling lab/one:1" not in two.output


def test_the_id_of_a_task_that_is_waited_for_is_on_stdout(agentless):
    done = agentless("submit", "node1", "--wait", "--", "sh", "-c", "exit 7", code=7)
    assert done.out.split() == [agentless.get("/v1/tasks", ended=True)[-1]["id"]]


@pytest.mark.slow
def test_a_refusal_in_a_batch_hides_nothing_of_the_others(agentless):
    """Their ids are told, they are waited for, and the exit code says that not all were taken."""
    words = ("node1::0", "node1::7", "--wait")
    sweep = ("--", "sh", "-c", "exit $0", "span:{0..1}")
    done = agentless("submit", *words, *sweep, code=3)
    tasks = agentless.get("/v1/tasks", ended=True, batch=done.out.split()[0])
    assert done.out.split() == [task["id"] for task in tasks]
    assert [task["exit_code"] for task in tasks] == [0, 1]
    assert "no node can run node1::7" in done.err
    assert "completed" in done.err
    ended = json.loads(agentless("submit", *words, "--json", *sweep, code=3).out)
    assert [task["state"] for task in ended] == ["completed", "failed"]
