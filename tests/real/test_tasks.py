"""The verbs about a task that exists: logs, stop, kill, pause, resume, wait, show, rm."""

from __future__ import annotations

import signal
import time

import pytest

from tests.real.cli import containers, finish, inspect, until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep .1; done"
POLITE = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep .1; done"
BOTH = ("sh", "-c", "echo one; echo two; echo three; echo uno >&2; echo due >&2")


def ready(agentless, script, *options):
    """A task that has printed its first line."""
    task = agentless.submit("node1::0", *options, "--", "sh", "-c", script)
    until(lambda: agentless("logs", task).out)
    return task


def ended(agentless, *command):
    task = agentless.submit("node1", "--", *command)
    agentless("wait", task, code=None)
    return task


# ---------------------------------------------------------------------- logs


def test_logs_have_two_streams(agentless):
    done = agentless("logs", ended(agentless, *BOTH))
    assert (done.out, done.err) == ("one\ntwo\nthree\n", "uno\ndue\n")


PARTS = (
    ("--stdout", "one\ntwo\nthree\n", ""),
    ("--stderr", "", "uno\ndue\n"),
    ("--stdout --stderr", "one\ntwo\nthree\n", "uno\ndue\n"),
    ("--since 1h", "one\ntwo\nthree\n", "uno\ndue\n"),
    ("--since 2020-01-01T00:00", "one\ntwo\nthree\n", "uno\ndue\n"),
    ("--since 2040-01-01T00:00", "", ""),
    ("--tail 0", "", ""),
)


def test_a_part_of_a_log(agentless):
    task = ended(agentless, *BOTH)
    for options, out, err in PARTS:
        done = agentless("logs", task, *options.split())
        assert (done.out, done.err) == (out, err), options


def test_tail_counts_lines_of_both_streams(agentless):
    done = agentless("logs", ended(agentless, *BOTH), "-n", "2")
    assert len((done.out + done.err).splitlines()) == 2


def test_since_leaves_out_what_is_older(agentless):
    """Up to the fraction of a second: the second line is 1.2 s younger than the first."""
    task = ended(agentless, "sh", "-c", "echo old; sleep 1.2; echo young")
    stamp, _ = agentless("logs", task, "--timestamps").out.splitlines()[1].split()
    assert agentless("logs", task, "--since", stamp[:23] + "+00:00").out == "young\n"


def test_a_log_is_given_as_it_is(agentless):
    """With a NUL in it and no newline at its end."""
    assert agentless("logs", ended(agentless, "printf", r"a\000é")).out == "a\0é"


def test_follow_shows_lines_as_they_come_until_the_end(agentless, node):
    task = agentless.submit("node1", "--", "sh", "-c", "echo first; until [ -e /go ]; do sleep .05; done; echo last")
    following = agentless.start("logs", "-f", task)
    assert following.stdout.readline() == "first\n"
    node.sh(f"docker exec agentless-{task} touch /go")
    done = finish(following)
    assert (done.code, done.out) == (0, "last\n")


@pytest.mark.parametrize("words", ["logs -f", pytest.param("wait", marks=pytest.mark.slow)])
def test_ctrl_c_does_not_end_the_task(agentless, words):
    """And says how to."""
    task = ready(agentless, STUBBORN)
    process = agentless.start_request(*words.split(), task)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert f"agentless stop {task}" in done.err
    assert agentless.task(task)["state"] == "running"


def test_ctrl_c_of_a_submit_that_follows_does_not_end_the_task(agentless):
    process = agentless.program("submit", "node1::0", "--follow", "--", "sh", "-c", STUBBORN)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    done = finish(process)
    (task,) = agentless.json("ps")
    assert (done.code, task["state"]) == (130, "running")
    assert f"agentless stop {task['id']}" in done.err


@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_error(agentless):
    task = ended(agentless, "seq", "100000")
    process = agentless.program("logs", task)
    process.stdout.readline()
    process.stdout.close()
    process.wait(30)
    assert process.stderr.read() == ""


# ---------------------------------------------------------------------- stop and kill


def test_stop_asks_gently(agentless):
    """A task that takes SIGTERM well ends in its own way: its exit code and its last words are kept."""
    task = ready(agentless, POLITE)
    assert agentless("stop", task).out == f"{task}  stopped (7)\n"
    assert agentless("logs", task).out == "ready\nbye\n"


def test_stop_kills_after_the_grace(agentless):
    task = ready(agentless, STUBBORN)
    assert agentless("stop", task, "--grace", "0.5s").out == f"{task}  stopped (137)\n"


def test_stop_takes_the_grace_of_the_submit(agentless):
    task = ready(agentless, STUBBORN, "--stop-grace", "1s")
    began = time.monotonic()
    assert agentless("stop", task).out == f"{task}  stopped (137)\n"
    assert time.monotonic() - began >= 1


def test_a_paused_task_can_be_stopped(agentless):
    task = ready(agentless, POLITE)
    agentless("pause", task)
    assert agentless("stop", task).out == f"{task}  stopped (7)\n"


@pytest.mark.slow
def test_a_paused_task_can_be_killed(agentless):
    task = ready(agentless, POLITE)
    agentless("pause", task)
    assert agentless("kill", task).out == f"{task}  killed (137)\n"


def test_kill_does_not_ask(agentless):
    task = ready(agentless, POLITE)
    assert agentless("kill", task).out == f"{task}  killed (137)\n"
    assert agentless("logs", task).out == "ready\n"


def test_stop_frees_the_gpu(agentless):
    agentless("kill", ready(agentless, POLITE))
    assert agentless.gpu("node1::0")["state"] == "free"


def test_stop_of_what_has_ended_changes_nothing(agentless):
    task = ended(agentless, "sh", "-c", "exit 5")
    before = agentless.task(task)
    agentless("stop", task)
    assert agentless.task(task) == before


def test_one_of_several_fails_alone(agentless):
    task = ready(agentless, POLITE)
    done = agentless("kill", "nonsense", task, code=2)
    assert "no task 'nonsense'" in done.err
    assert done.out == f"{task}  killed (137)\n"


# ---------------------------------------------------------------------- pause and resume


def test_a_paused_task_stands_still_and_keeps_its_gpu(agentless, node):
    task = ready(agentless, POLITE)
    assert agentless("pause", task).out == f"{task}  paused\n"
    assert inspect(node, task)["State"]["Status"] == "paused"
    assert agentless.gpu("node1::0")["task"] == task


def test_a_resumed_task_goes_on(agentless, node):
    task = ready(agentless, POLITE)
    agentless("pause", task)
    assert agentless("resume", task).out == f"{task}  running\n"
    assert inspect(node, task)["State"]["Status"] == "running"


@pytest.mark.parametrize(("verb", "state"), [("resume", "running"), ("pause", "completed")])
def test_a_move_that_cannot_be_is_refused(agentless, verb, state):
    task = ready(agentless, POLITE) if state == "running" else ended(agentless, "true")
    assert f"is {state}" in agentless(verb, task, code=3).err


def test_what_docker_does_by_other_hands_is_seen(agentless, node):
    """Somebody pauses and stops the container on the node itself."""
    task = ready(agentless, POLITE)
    node.sh(f"docker pause agentless-{task}")
    until(lambda: agentless.task(task)["state"] == "paused")
    node.sh(f"docker unpause agentless-{task}; docker stop agentless-{task}")
    until(lambda: agentless.task(task)["state"] == "failed")
    assert agentless.task(task)["exit_code"] == 7


# ---------------------------------------------------------------------- wait, show, rm


@pytest.mark.parametrize("code", [0, 255])
def test_wait_returns_the_tasks_exit_code(agentless, code):
    agentless("wait", agentless.submit("node1", "--", "sh", "-c", f"exit {code}"), code=code)


def test_wait_waits(agentless):
    task = agentless.submit("node1", "--", "sleep", "1")
    agentless("wait", task)
    assert agentless.task(task)["state"] == "completed"


def test_wait_for_several_returns_the_first_that_is_not_0(agentless):
    tasks = [agentless.submit("node1", "--", "sh", "-c", f"exit {code}") for code in (0, 6, 5)]
    agentless("wait", *tasks, code=6)


def test_out_of_memory_is_told(agentless, lab):
    """As Docker says it, not guessed from 137. On a busy machine Docker may hear of the end before the reason."""
    eat = "a=x; while :; do a=$a$a; done"
    for _ in range(3):
        task = agentless.submit("node1", "--memory", "20M", "--", "sh", "-c", eat)
        agentless("wait", task, code=137)
        told = inspect(lab.nodes["node1"], task)["State"]["OOMKilled"]
        assert agentless.task(task)["state"] == ("killed_oom" if told else "failed")
        if told:
            return


def test_times_are_in_order(agentless):
    task = agentless.task(ended(agentless, "sleep", "1"))
    assert task["created_at"] <= task["started_at"] < task["ended_at"]


def test_a_beginning_of_the_id_is_enough(agentless):
    task = ended(agentless, "true")
    assert agentless.task(task[:9])["id"] == task


def test_a_beginning_of_several_is_refused(agentless):
    tasks = [ended(agentless, "true"), ended(agentless, "true")]
    message = agentless("show", tasks[0][:2], code=2).err
    assert "type more of the id" in message


def test_show_tells_what_happened(agentless):
    task = ended(agentless, "sh", "-c", "exit 5")
    lines = [line.split() for line in agentless("show", task).out.splitlines()]
    assert ["state", "failed", "(5)"] in lines
    assert [" ".join(line[3:]) for line in lines[-3:]] == [
        f"Assigned to node1: submitted by {agentless.task(task)['owner']}",
        "Started: docker run on node1 answered",
        "Exited: failed (5): node1: exited with code 5",
    ]


def test_rm_removes_the_container_and_the_record(agentless, node):
    task = ended(agentless, "true")
    assert agentless("rm", task, task).out == f"{task}  removed\n"  # a task named twice is one
    assert containers(node) == []
    assert "no task" in agentless("show", task, code=2).err


def test_rm_refuses_what_lives(agentless, node):
    task = ready(agentless, POLITE)
    assert "agentless stop" in agentless("rm", task, code=3).err
    assert containers(node) == [f"agentless-{task}"]


def test_rm_force_kills_first(agentless, node):
    agentless("rm", "--force", ready(agentless, POLITE))
    assert containers(node) == []
    assert agentless.is_free()


def test_rm_of_a_task_that_never_started(agentless):
    task = agentless.json("submit", "node1", "--", "no-such-program", code=1)[0]["id"]
    agentless("rm", task)
    assert "no task" in agentless("show", task, code=2).err
