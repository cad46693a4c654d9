"""The queue on real nodes, with two GPUs each: who waits, for how long, and why."""

from __future__ import annotations

import re

import pytest

from tests.real.cli import Cli, until


@pytest.fixture
def bob(lab):
    """Somebody else with a controller of their own, which knows nothing of the first."""
    cli = Cli(lab, "bob", LOGNAME="bob")
    yield cli.settle()
    cli.close()


def held(agentless, lab):
    """The GPUs of each running task, as its own container sees them."""
    everywhere = [each["Labels"] for node in lab.nodes.values() for each in node.ask_docker("GET", "/containers/json")]
    return {it["agentless.task"]: it["agentless.gpus"].split(",") for it in everywhere if "agentless.task" in it}


@pytest.mark.slow
def test_ten_tasks_on_four_gpus_run_four_at_a_time_and_in_their_order(agentless, lab):
    tasks = [agentless.submit("1x", "--", "sh", "-c", "until [ -e /go ]; do sleep 0.05; done") for _ in range(10)]
    until(lambda: sum(task["state"] == "running" for task in agentless.get("/v1/tasks")) == 4)
    assert [task["id"] for task in agentless.json("queue")] == tasks[4:]
    left = list(tasks)
    while left:
        until(lambda: set(held(agentless, lab)) == set(left[:4]))
        gpus = [gpu for one in held(agentless, lab).values() for gpu in one]
        assert len(gpus) == len(set(gpus)) == min(4, len(left))
        first = left.pop(0)
        node = lab.nodes[agentless.task(first)["node"]]
        node.sh(f"docker exec agentless-{first} touch /go")
    assert [agentless("wait", task).code for task in tasks] == [0] * 10


@pytest.mark.slow
def test_explain_names_the_four_holders_and_when_it_starts(agentless):
    holders = [agentless.submit("1x", "--time-limit", "1h", "--", "sleep", "60") for _ in range(4)]
    fifth = agentless.submit("1x", "--name", "fifth", "--", "true")
    said = agentless("explain", "fifth").out
    assert all(f"held by task {holder}" in said for holder in holders)
    # On a machine that is busy it is some seconds since the first of them began.
    assert re.search(rf"task {fifth} \(1x\) is number 1 in the queue; starts within (1h 0m|59m \d+s) ", said)
    agentless("kill", holders[2])
    assert agentless("wait", fifth).code == 0


def test_a_queued_submit_says_so_and_where_to_look(agentless):
    agentless.submit("node1::0,1", "--", "sleep", "60")
    done = agentless("submit", "node1::0", "--", "true")
    assert done.out.strip() in done.err
    assert "queued: GPU 0 is allocated: held by task" in done.err
    assert "GPU 0 is allocated" in agentless("ps").out
    agentless("stop", done.out.strip())  # else it starts while the containers of this test are removed


def test_a_task_for_more_memory_than_there_is_is_refused_at_once(agentless):
    done = agentless("submit", "1x:500G", "--", "true", code=3)
    assert "no node can run 1x:500G:\n  node1: " in done.err
    assert agentless.json("ps") == []


def test_the_next_one_starts_when_a_stranger_leaves_its_gpu(agentless, lab):
    node = lab.nodes["node1"]
    stranger = node.add_process(0, ["sleep", "600"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    task = agentless.submit("node1::0", "--", "true")
    assert agentless.task(task)["state"] == "pending"
    assert "is foreign" in agentless.task(task)["reason"]
    stranger.kill()
    stranger.wait()
    assert agentless("wait", task).code == 0


def test_any_two_gpus_of_a_node_are_had_by_a_number(agentless, lab):
    task = agentless.submit("node2", "--gpus", "2", "--", "sleep", "60")
    assert (agentless.task(task)["node"], agentless.task(task)["gpus"]) == ("node2", [0, 1])


def test_cores_that_are_set_aside_are_waited_for(agentless):
    cores = agentless.node("node1")["cores"]
    first = agentless.submit("node1", "--cores", str(cores), "--", "sleep", "60")
    second = agentless.submit("node1", "--cores", "1", "--", "true")
    assert "needs 1 core; 0 of" in agentless.task(second)["reason"]
    agentless("kill", first)
    assert agentless("wait", second).code == 0


def test_nobody_is_beside_who_wants_a_node_alone_whichever_controller_asks(agentless, bob):
    alone = agentless.submit("node1", "--exclusive", "--", "sleep", "60")
    until(lambda: alone in [task["id"] for task in bob.get("/v1/tasks")])
    said = bob("submit", "node1", "--no-queue", "--", "true", code=3).err
    assert f"task {alone}" in said
    assert "has node1 to itself" in said
    agentless("kill", alone)
    until(lambda: bob("submit", "node1", "--no-queue", "--", "true", code=None).code == 0)
