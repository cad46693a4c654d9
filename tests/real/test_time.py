"""Time on real nodes, with two GPUs each: limits, promises that come true, tasks for later, tries, sweeps."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from tests.real.cli import until

CLOCKS = 0.5
"""Seconds by which the clocks of a node and of the controller may seem to differ on a busy machine."""


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def test_at_its_limit_a_container_gets_its_signal_and_the_task_is_called_timeout(agentless):
    script = "trap 'echo told; exit 7' USR1; while :; do sleep 0.1; done"
    task = agentless.submit(
        "1x", "--time-limit", "5s", "--signal", "USR1", "--signal-before", "2s", "--", "sh", "-c", script
    )
    assert agentless("wait", task, code=7).code == 7
    over = agentless.task(task)
    assert over["state"] == "timeout"
    assert seconds(over["ended_at"]) - seconds(over["started_at"]) > 3 - CLOCKS
    assert agentless("logs", task).out == "told\n"


def test_who_does_not_listen_is_killed_after_the_grace_time(agentless):
    """Not before, and after it was asked. How much later is the matter of a machine that may be busy."""
    script = "trap 'echo asked' TERM; while :; do sleep 0.1; done"
    task = agentless.submit("1x", "--time-limit", "3s", "--stop-grace", "1s", "--", "sh", "-c", script)
    assert agentless("wait", task, code=137).code == 137
    over = agentless.task(task)
    assert over["state"] == "timeout"
    assert seconds(over["ended_at"]) - seconds(over["started_at"]) > 4 - CLOCKS
    assert agentless("logs", task).out == "asked\n"


@pytest.mark.slow
def test_the_start_that_explain_names_comes_true(agentless):
    """It is when the first of those that run comes to its limit: not before, and then, since that has ended."""
    limits = ("--time-limit", "20s", "--stop-grace", "1s")
    holders = [agentless.submit("1x", *limits, "--", "sleep", "60") for _ in range(4)]
    fifth = agentless.submit("1x", "--", "true")
    found = agentless.json("explain", fifth)
    details = " ".join(line for each in found["obstacles"] for line in each["details"])
    assert all(f"held by task {holder}" in details for holder in holders)
    assert agentless("wait", fifth).code == 0
    over = [agentless.task(holder) for holder in holders]
    limit = min(seconds(task["started_at"]) for task in over) + 20 + 1
    assert seconds(found["expected_start"]) == pytest.approx(limit, abs=CLOCKS)
    ended = min(seconds(task["ended_at"]) for task in over if task["ended_at"])
    assert seconds(agentless.task(fifth)["started_at"]) > ended - CLOCKS


def test_a_foreign_process_keeps_its_gpu_out_and_the_next_task_starts_after_its_end(agentless, lab):
    node = lab.nodes["node1"]
    stranger = node.add_process(0, ["sleep", "600"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    task = agentless.submit("node1::0", "--", "true")
    until(lambda: agentless.task(task)["state"] == "pending")
    stranger.kill()
    stranger.wait()
    left = time.time()
    assert agentless("wait", task).code == 0
    assert seconds(agentless.task(task)["started_at"]) > left - CLOCKS


def test_a_gpu_that_a_stranger_has_beside_a_task_is_not_promised_for_the_end_of_that(agentless, lab):
    stranger = lab.nodes["node1"].add_process(0, ["sleep", "600"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    agentless.submit("node1::0", "--share", "--time-limit", "60s", "--", "sleep", "60")
    until(lambda: ", shared with " in agentless.gpu("node1::0")["reason"])
    task = agentless.submit("node1::0", "--", "true")
    found = agentless.json("explain", task)
    assert found["expected_start"] is None
    assert "has ended" not in str(found["remedies"])
    stranger.kill()
    stranger.wait()
    until(lambda: agentless.json("explain", task)["expected_start"])


def test_an_earlier_try_is_not_tried_again_in_place_of_the_one_that_runs(agentless):
    task = agentless.submit("1x", "--", "sleep", "60")
    agentless("kill", task)
    agentless("retry", task)
    until(lambda: agentless.task(task)["state"] == "running")
    refused = agentless("retry", f"{task}-1", code=3)
    assert f"was already retried as {task}-2" in refused.err
    assert agentless("kill", task).out.startswith(f"{task}-2  killed")


def test_a_task_for_later_starts_at_its_time(agentless):
    task = agentless.submit("1x", "--in", "3s", "--", "true")
    assert agentless.task(task)["state"] == "scheduled"
    at = seconds(agentless.task(task)["scheduled_for"])
    assert agentless("wait", task).code == 0
    assert seconds(agentless.task(task)["started_at"]) > at - CLOCKS


def test_a_task_that_ran_out_of_memory_is_tried_again(agentless):
    script = "head -c 100m /dev/zero | tail > /dev/null"
    task = agentless.submit(
        "1x", "--memory", "20MiB", "--retries", "1", "--retry-on", "oom", "--backoff", "0s", "--", "sh", "-c", script
    )
    assert agentless("wait", task, code=None).code
    tries = [each for each in agentless.json("ps", "--all") if each["batch"] == task]
    assert [each["id"] for each in tries] == [task, f"{task}-2"]
    assert {each["state"] for each in tries} == {"killed_oom"}


@pytest.mark.slow
def test_a_sweep_is_one_batch_of_six(agentless):
    command = ("sh", "-c", 'echo "$2 $4"', "t", "--lr", "span:[0.1,0.01]", "--seed", "span:{1..3}")
    done = agentless("submit", "--gpus", "1", "--wait", "--json", "--", *command)
    assert len({task["batch"] for task in done.json}) == 1
    assert [tuple(task["parameters"].values()) for task in done.json] == [
        (lr, seed) for lr in ("0.1", "0.01") for seed in "123"
    ]
    assert {task["state"] for task in done.json} == {"completed"}
    assert agentless("logs", done.json[5]["id"]).out == "0.01 3\n"
