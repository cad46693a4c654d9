"""Tasks that give way on real nodes with two GPUs each: saved, back in the queue, and on from where they were."""

from __future__ import annotations

import pytest

from tests.real.cli import until

COUNTS = """
n=$(cat /work/n 2>/dev/null || echo 0)
echo "from $n"
trap 'echo "$n" >/work/n; echo "saved $n"; exit 0' TERM
while :; do n=$((n + 1)); sleep 0.02; done
"""
"""Counts, saves how far it is when it has to go, and goes on from there."""


def lend(agentless, *options):
    """A preemptible task that counts, and runs on all GPUs of node1."""
    task = agentless.submit("node1::0,1", "--preemptible", *options, "--", "sh", "-c", COUNTS)
    until(lambda: "from " in agentless("logs", task).out)
    return task


def give_way(agentless, task, number):
    """Another task needs one of its GPUs; returns what try `number` of the task has said."""
    other = agentless.submit("node1::0", "--", "true")
    assert agentless("wait", other).code == 0
    until(lambda: agentless.task(f"{task}-{number}")["state"] == "preempted")
    until(lambda: agentless.task(f"{task}-{number + 1}")["state"] == "running")
    until(lambda: "from " in agentless("logs", f"{task}-{number + 1}").out)
    return agentless("logs", f"{task}-{number}").out.split("\n")[:2]


def goes_on(agentless, times):
    task = lend(agentless, "--volume", f"saved-{times}:/work")
    saved = "0"
    for number in range(1, times + 1):
        begun, ended = give_way(agentless, task, number)
        assert begun == f"from {saved}"
        assert ended.startswith("saved ")
        assert int(ended.removeprefix("saved ")) >= int(saved)
        saved = ended.removeprefix("saved ")
    shown = agentless.task(task)
    assert (shown["id"], shown["preemptions"], shown["attempt"]) == (f"{task}-{times + 1}", times, times + 1)
    agentless("kill", task)
    agentless("rm", task)
    agentless("volume", "rm", "--force", f"saved-{times}")


def test_a_task_that_saves_when_it_is_preempted_goes_on_from_there(agentless):
    goes_on(agentless, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_times(agentless):
    goes_on(agentless, 50)


@pytest.mark.slow
def test_explain_says_who_would_be_preempted_and_who_may_be(agentless):
    task = lend(agentless, "--min-run", "1h")
    said = agentless("explain", "node1::0").out
    assert "  preempts task " + task in said
    assert "when --min-run is over" in said
    assert "it is preemptible: it gives way to any task that needs its place, but not before" in (
        agentless("explain", task).out
    )
    assert "gives way  after 1h 0m; then it goes back to the queue" in agentless("show", task).out
    agentless("kill", task)


@pytest.mark.slow
def test_a_controller_that_is_killed_while_a_task_saves_preempts_nobody_else(agentless):
    saves = "trap 'sleep 2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    tasks = [
        agentless.submit(f"node1::{gpu}", "--preemptible", "--grace", "60s", "--", "sh", "-c", saves) for gpu in (0, 1)
    ]
    until(lambda: all("up" in agentless("logs", task).out for task in tasks))
    other = agentless.submit("node1", "--gpus", "1", "--", "sleep", "60")
    until(lambda: any((task["reason"] or "").startswith("giving way") for task in agentless.get("/v1/tasks")))
    agentless.kill_controller()
    until(lambda: agentless.task(other)["state"] == "running")
    first = [agentless.task(f"{task}-1")["state"] for task in tasks]
    assert sorted(first) == ["preempted", "running"]
    victim = tasks[first.index("preempted")]
    assert agentless("logs", f"{victim}-1").out.count("saved") == 1
    assert agentless.task(victim)["id"] == f"{victim}-2"
