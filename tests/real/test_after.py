"""Tasks that wait for others, on real nodes: also over a controller that is killed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.real.cli import until

GATE = ("sh", "-c", "until [ -e /go ]; do sleep 0.05; done")


def test_a_task_starts_after_the_one_before_it_although_the_controller_was_killed(agentless, lab):
    first = agentless.submit("node1::0", "--name", "prepare", "--time-limit", "1h", "--", *GATE)
    done = agentless("submit", "node1::0", "--name", "train", "--after", "prepare", "--", "echo", "trained")
    second = done.out.strip()
    assert f"blocked: waits for task {first} (running)" in done.err
    assert f"waits for task {first} (running, ends within" in agentless("explain", "train").out
    agentless.kill_controller()
    lab.nodes["node1"].sh(f"docker exec agentless-{first} touch /go && docker wait agentless-{first}")
    assert agentless("wait", second).code == 0
    assert agentless("logs", second).out == "trained\n"
    before, after = agentless.task(first), agentless.task(second)
    assert before["ended_at"] <= after["started_at"]


def test_what_cannot_come_any_more_is_cancelled_with_its_reason(agentless):
    first = agentless.submit("node1::0", "--", "sleep", "60")
    second = agentless.submit("node1::0", "--after", first, "--", "true")
    cleanup = agentless.submit("node1::0", "--after", f"{first}:ended", "--", "echo", "clean")
    agentless("kill", first)
    assert agentless("wait", cleanup).code == 0
    done = agentless("wait", second, code=1)
    assert f"needs task {first} to complete, but it was killed" in done.out + done.err
    refused = agentless("submit", "node1::0", "--after", first, "--", "true", code=3)
    assert f"needs task {first} to complete, but it was killed" in refused.err


@pytest.mark.slow
def test_a_chain_of_200_tasks_runs_one_after_the_other(agentless):
    chain = [agentless.submit("node1", "--name", "link0", "--", "true")]
    for number in range(1, 200):
        chain.append(agentless.submit("node1", "--name", f"link{number}", "--after", chain[-1], "--", "true"))
    until(lambda: agentless.task(chain[-1])["ended_at"], 900)
    tasks = [agentless.task(task) for task in chain]
    assert {task["state"] for task in tasks} == {"completed"}
    assert all(a["ended_at"] <= b["started_at"] for a, b in pairwise(tasks))


def test_a_folder_runs_after_another_task(agentless):
    first = agentless.submit("node1::0", "--time-limit", "1h", "--", "sleep", "1")
    done = agentless("run", "node1::0", "--after", first, "--", "echo", "after it")
    assert done.out == "after it\n"
    assert f"blocked: waits for task {first} (running)" in done.err
