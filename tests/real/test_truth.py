"""The node is the truth: what somebody does behind our back, what a lost state leaves, and who else is there."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta

import pytest

from tests.real.cli import Cli, containers, finish, inspect, inventory_of, until


@pytest.fixture
def alone(lab):
    """Somebody whose state is lost in the test."""
    cli = Cli(lab, "alone")
    yield cli
    cli.close()


@pytest.fixture
def bob(lab):
    """Somebody else on another machine, as far as agentless can tell."""
    cli = Cli(lab, "bob", USER="bob", LOGNAME="bob")
    yield cli
    cli.close()


def running(cli, *words):
    return cli.submit(*(words or ("node1::0",)), "--", "sh", "-c", "trap 'exit 7' TERM; sleep 300 & wait")


def state_of(cli, task):
    return cli.task(task)["state"]


def is_same(ours, engines):
    """Whether two times are: ours have three digits after the second, the engine's nine."""
    return ours and abs(datetime.fromisoformat(ours) - datetime.fromisoformat(engines)) < timedelta(milliseconds=2)


# ---------------------------------------------------------------------- by hand


def test_a_container_that_is_renamed_is_the_same_task(agentless, node):
    task = running(agentless)
    node.sh(f"docker rename agentless-{task} mine")
    agentless("stop", task, "--grace", "5s")
    found = agentless.task(task)
    assert (found["state"], found["exit_code"]) == ("stopped", 7)
    agentless("rm", task)
    assert containers(node) == []


def test_a_container_that_is_paused_by_hand_is_a_paused_task(agentless, node):
    task = running(agentless)
    node.sh(f"docker pause agentless-{task}")
    until(lambda: state_of(agentless, task) == "paused")
    node.sh(f"docker unpause agentless-{task}")
    until(lambda: state_of(agentless, task) == "running")


def test_a_container_that_is_restarted_by_hand_is_a_running_task_that_began_again(agentless, node):
    task = running(agentless)
    before = agentless.task(task)["started_at"]
    node.sh(f"docker restart --time 1 agentless-{task}")
    began = inspect(node, task)["State"]["StartedAt"]
    until(lambda: is_same(agentless.task(task)["started_at"], began))
    assert (state_of(agentless, task), began > before) == ("running", True)


def test_a_task_that_is_started_again_by_hand_after_its_end_lives_again(agentless, node):
    task = agentless.submit("node1::0", "--", "sh", "-c", "test -e /again && sleep 300; touch /again; exit 3")
    until(lambda: state_of(agentless, task) == "failed")
    node.sh(f"docker start agentless-{task}")
    until(lambda: state_of(agentless, task) == "running")
    assert agentless.gpu("node1::0")["task"] == task
    agentless("kill", task)
    assert state_of(agentless, task) == "killed"


def test_a_container_that_is_removed_by_hand_is_a_failed_task_that_says_so(agentless, node):
    task = running(agentless)
    node.sh(f"docker rm --force agentless-{task}")
    until(lambda: state_of(agentless, task) == "failed")
    assert agentless.task(task)["reason"] == "its container was removed on the node, outside agentless"


def test_labels_that_somebody_damaged_still_hold_their_gpu_and_are_shown(agentless, node):
    gpu = node.gpu_uuids[0]
    labels = (
        f"--label agentless.task=odd --label agentless.gpus={gpu} --label agentless.owner=eve --label agentless.spec=x"
    )
    node.sh(f"docker run --detach {labels} busybox sleep 300")
    until(lambda: agentless.gpu("node1::0")["task"] == "odd")
    assert "held by task odd of eve" in agentless("submit", "node1::0", "--no-queue", "--", "true", code=3).err
    assert [(task["id"], task["owner"]) for task in agentless.json("ps")] == [("odd", "eve")]


# ---------------------------------------------------------------------- while we were away


def test_an_end_that_nobody_saw_has_the_engines_code_and_times(agentless, node):
    task = agentless.submit("node1::0", "--", "sh", "-c", "echo last words; sleep 1; exit 9")
    agentless.kill_controller()
    node.sh(f"docker wait agentless-{task}")
    agentless("nodes")
    found = agentless.task(task)
    engine = inspect(node, task)["State"]
    assert (found["state"], found["exit_code"]) == ("failed", 9)
    assert (found["started_at"][:22], found["ended_at"][:22]) == (engine["StartedAt"][:22], engine["FinishedAt"][:22])
    assert agentless("logs", task).out == "last words\n"


@pytest.mark.slow
def test_a_task_that_an_older_state_does_not_know_is_taken_in_again(alone):
    """The newest state was torn, and the copy before it is used."""
    running(alone, "node1::0")
    alone("controller", "stop")
    before = (alone.state / "state.json").read_bytes()
    task = running(alone, "node1::1")
    node = alone.lab.nodes["node1"]
    until(lambda: is_same(alone.task(task)["started_at"], inspect(node, task)["State"]["StartedAt"]))
    shown = alone.json("ps")
    alone.kill_controller()
    (alone.state / "state.json").write_bytes(before)
    until(lambda: alone.json("ps") == shown)
    until(lambda: json.loads((alone.state / "state.json").read_bytes()).get("tasks", {}).keys() >= {task})


def test_everything_comes_back_from_the_nodes_when_the_state_is_deleted(alone):
    first = alone.submit("node1::0,1", "node2::0", "--name", "both", "-e", "A=1", "--", "sleep", "300")
    paused = running(alone, "node2::1")
    alone("pause", paused)
    ended = alone.submit("node1", "--", "sh", "-c", "echo out; exit 4")
    until(lambda: state_of(alone, ended) == "failed")
    until(lambda: all(is_same(task["started_at"], seen) for task, seen in _starts(alone)))
    before = {task["id"]: task for task in alone.json("ps", "--all")}
    alone("controller", "stop")
    shutil.rmtree(alone.state)

    asked = alone("recover", code=3)
    assert all(task in asked.out for task in before)
    assert "recover --yes" in asked.err
    assert alone("ps", "--all").out.count("sleep 300") == 3  # shown as the nodes tell it, and nothing is written yet
    assert [task["id"] for task in alone.json("recover", "--yes", paused[:-1])] == [paused]
    assert "No task" in alone("recover", "--yes", paused, code=2).err
    assert len(alone.json("recover", "--yes")) == 3
    after = {task["id"]: task for task in alone.json("ps", "--all")}
    assert after == before
    assert first.split()[0] in after
    assert alone("recover", "--yes").err.startswith("Nothing to recover")
    alone("stop", "both", "--grace", "1s", code=None)
    assert alone("wait", ended, code=4).code == 4


def _starts(cli):
    """Of each task, when we say that it started and when its engine does."""
    for task in cli.json("ps", "--all"):
        yield task, inspect(cli.lab.nodes[task["node"]], task["id"])["State"]["StartedAt"]


def test_recover_names_the_nodes_that_do_not_answer(alone, node):
    node.stop_sshd()
    said = alone("recover", "--yes", code=4).err
    assert "node1 does not answer" in said
    assert "Nothing to recover" in said


# ---------------------------------------------------------------------- a node that left


@pytest.mark.slow
def test_a_task_on_a_node_that_left_the_inventory_is_lost_until_it_comes_back(agentless, lab):
    task = running(agentless, "node2::0")
    whole = inventory_of(lab)
    agentless.write_inventory("\n".join(line for line in whole.splitlines() if "node2" not in line))
    agentless("nodes")
    until(lambda: state_of(agentless, task) == "lost")
    assert agentless.task(task)["reason"] == "node2 is no longer in the inventory; add it again to reach its tasks"
    assert "add it again" in agentless("stop", task, code=4).err
    agentless.write_inventory(whole)
    agentless("nodes")
    until(lambda: state_of(agentless, task) in ("stopped", "failed"))  # the stop that was asked for is done now
    assert agentless.task(task)["exit_code"] == 7


def test_a_task_on_a_node_that_is_gone_for_good_can_be_forgotten(agentless, lab):
    task = running(agentless, "node2::0")
    whole = inventory_of(lab)
    agentless.write_inventory("\n".join(line for line in whole.splitlines() if "node2" not in line))
    agentless("rm", "--force", task)
    assert task not in agentless("ps", "--all").out
    agentless.write_inventory(whole)
    agentless("nodes")
    assert inspect(lab.nodes["node2"], task)["State"]["Running"]


# ---------------------------------------------------------------------- somebody else


@pytest.mark.slow
def test_two_people_see_each_others_tasks_and_only_their_own_with_mine(agentless, bob):
    mine, theirs = running(agentless, "node1::0"), running(bob, "node1::1")
    until(lambda: {task["id"] for task in agentless.json("ps")} == {mine, theirs})
    until(lambda: {task["id"] for task in bob.json("ps")} == {mine, theirs})
    assert [task["id"] for task in agentless.json("ps", "--mine")] == [mine]
    assert agentless.gpu("node1::1")["owner"].startswith("bob@")
    assert agentless.json("recover", "--yes") == []  # what is bob's is not ours to remember


@pytest.mark.slow
def test_the_loser_of_a_race_gets_a_sentence(agentless, bob):
    both = [cli.start("submit", "node1::0", "--no-queue", "--", "sleep", "60") for cli in (agentless, bob)]
    done = [finish(process) for process in both]
    assert sorted(each.code for each in done) == [0, 3]
    (lost,) = (each for each in done if each.code == 3)
    assert lost.err.startswith("agentless: node1::0: GPU 0 is ")
    assert len(lost.err.splitlines()) == 1


# ---------------------------------------------------------------------- processes outside


def test_a_gpu_that_somebody_uses_is_given_to_who_wants_to_share_it(agentless, node):
    node.add_process(0, ["sleep", "300"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    task = running(agentless, "node1::0", "--share")
    assert agentless.gpu("node1::0")["task"] == task
    assert agentless.task(task)["intruders"] == []


def test_who_comes_to_use_an_allocated_gpu_is_reported(agentless, node):
    task = running(agentless)
    process = node.add_process(0, ["sleep", "299"], memory_mib=2048)
    pid = node.pid(process)
    until(lambda: [p["pid"] for p in agentless.task(task)["intruders"]] == [pid])
    words = f"root's process {pid} (sleep 299"
    assert f"Foreign process on node1::0, beside task {task}: {words}" in agentless("ps").err
    assert f"used by {words}" in agentless.gpu("node1::0")["reason"]
    assert f"+ {words}" in agentless("gpus", COLUMNS="200").out
    (event,) = (e for e in agentless.get(f"/v1/tasks/{task}/events") if e["event"] == "intruded")
    assert event["cause"] == f"{words}, 2 GiB) uses GPU 0"
    process.kill()
    process.wait()
    until(lambda: agentless.task(task)["intruders"] == [])


def test_a_task_is_no_intruder_on_its_own_gpu(agentless, node):
    task = running(agentless)
    node.use_gpu(0, inspect(node, task)["State"]["Pid"])
    until(lambda: agentless.gpu("node1::0")["processes"])
    assert agentless.gpu("node1::0")["intruders"] == []


# ---------------------------------------------------------------------- the audit trail


def test_events_tell_what_happened_to_a_task_and_why(agentless, node):
    task = running(agentless)
    owner = agentless.task(task)["owner"]
    node.sh(f"docker pause agentless-{task}")
    until(lambda: state_of(agentless, task) == "paused")
    node.sh(f"docker unpause agentless-{task}")
    until(lambda: state_of(agentless, task) == "running")
    agentless("stop", task)
    agentless("rm", task)
    lines = [json.loads(line) for line in agentless("events", "--json").out.splitlines()]
    of_task = [e for e in lines if e["kind"] == "task" and e["task"]["id"] == task]
    assert [(e["event"], e["task"]["state"], e["cause"]) for e in of_task] == [
        ("assigned", "assigning", f"submitted by {owner}"),
        ("launched", "running", "docker run on node1 answered"),
        ("froze", "paused", "seen on node1"),
        ("thawed", "running", "seen on node1"),
        ("stop-asked", "running", f"agentless stop, by {owner}"),
        ("exited", "stopped", "node1: exited with code 7"),
        ("removed", "stopped", f"agentless rm, by {owner}"),
    ]
    numbers = [e["seq"] for e in lines]
    assert numbers == sorted(set(numbers))


@pytest.mark.slow
def test_events_follow_and_go_on_with_the_next_controller(agentless):
    agentless("wait", agentless.submit("node1", "--", "true"))
    follower = agentless.start("events", "--follow", "--json", "-n", "1")
    follower.stdout.readline()  # it follows from here on
    first = agentless.submit("node1", "--", "true")
    while json.loads(follower.stdout.readline()).get("event") != "exited":
        pass
    agentless.kill_controller()
    second = agentless.submit("node1", "--", "true")
    seen = []
    while not seen or seen[-1].get("event") != "exited":
        seen.append(json.loads(follower.stdout.readline()))
    follower.kill()
    follower.communicate()
    assert "controller" in {event["kind"] for event in seen}
    assert {event["task"]["id"] for event in seen if event["kind"] == "task"} == {second} != {first}


def test_a_node_that_goes_and_comes_back_is_in_the_events(agentless, node):
    node.stop_sshd()
    until(lambda: agentless.node("node1")["state"] == "offline")
    node.start_sshd()
    agentless("doctor", code=None)
    until(lambda: agentless.node("node1")["state"] == "online")
    lines = [line[36:].strip() for line in agentless("events", "-n", "20").out.splitlines()]
    node1 = [line for line in lines if line.startswith("node1 is ")]
    assert node1[-1] == "node1 is online"
    assert any(line.startswith("node1 is offline: ") for line in node1)
