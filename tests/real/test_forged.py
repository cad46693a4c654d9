"""Somebody who may use Docker on node1 reads and writes any label there, and gets nothing done by that elsewhere."""

from __future__ import annotations

import json
import shlex

from agentless.model.containers.claim import GPUS, SPEC, TASK
from tests.real.cli import containers, inspect, until


def run(node, name, labels, *command):
    """`docker run` by hand, with these labels; the container's id."""
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    done = node.sh(shlex.join(["docker", "run", "--detach", "--name", name, *words, "busybox", *command]))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def row(cli, container):
    return next((task for task in cli.json("ps", "--all") if task["container"] == container), None)


def settle(cli):
    """The queue has been looked at since, and what it found has begun."""
    return cli("submit", "node2::0", "--wait", "--name", "after", "--", "true")


def test_a_forged_container_is_listed_as_not_ours_and_starts_nothing(agentless, node):
    task = agentless.submit("node1::0", "--", "sleep", "300")
    labels = inspect(node, task)["Config"]["Labels"]
    whole = json.loads(labels[SPEC])
    whole["spec"] |= {"needs": {"nodes": ["node2"]}, "command": ["touch", "/evil"], "terms": {"retries": 2}}
    evil = run(node, "evil", labels | {SPEC: json.dumps(whole), TASK: "0evil", GPUS: node.gpu_uuids[1]}, "false")
    found = until(lambda: (found := row(agentless, evil)) and found["state"] == "failed" and found)
    assert (found["foreign"], found["reason"].startswith("foreign: this controller did not start it")) == (True, True)
    settle(agentless)
    assert len(containers(agentless.lab.nodes["node2"])) == 1
    assert sorted(containers(node)) == [f"agentless-{task}", "evil"]


def test_its_gpu_is_held_and_it_can_be_stopped(agentless, node):
    task = agentless.submit("node1::0", "--", "sleep", "300")
    labels = inspect(node, task)["Config"]["Labels"] | {TASK: "0evil", GPUS: node.gpu_uuids[1]}
    evil = run(node, "evil", labels, "sleep", "300")
    until(lambda: agentless.gpu("node1::1")["task"] == evil[:12])
    assert f"held by task {evil[:12]}" in agentless("submit", "node1::1", "--no-queue", "--", "true", code=3).err
    agentless("kill", evil[:12])
    agentless("submit", "node1::1", "--wait", "--", "true")


def test_a_copy_of_signed_labels_is_not_the_task_even_under_its_name(agentless, node):
    task = agentless.submit("node1::0", "--retries", "2", "--", "sleep", "300")
    labels = inspect(node, task)["Config"]["Labels"]
    node.sh(f"docker rm --force agentless-{task}")
    copy = run(node, f"agentless-{task}", labels, "false")
    until(lambda: agentless.task(task)["state"] == "failed")
    found = until(lambda: row(agentless, copy))
    assert (found["id"], found["foreign"]) == (copy[:12], True)
    settle(agentless)
    assert containers(node) == [f"agentless-{task}"]


def test_what_calls_itself_the_next_try_of_a_task_is_not_taken_for_it(agentless, node):
    task = agentless.submit("node1::0", "--retries", "1", "--backoff", "0s", "--", "sh", "-c", "sleep 2; exit 1")
    evil = run(node, "evil", {TASK: f"{task}-2"}, "sleep", "300")
    until(lambda: (last := agentless.task(task))["id"] == f"{task}-2" and last["state"] == "failed")
    assert agentless.task(f"{task}-2")["container"] != evil
    assert sorted(containers(node)) == [f"agentless-{task}", f"agentless-{task}-2", "evil"]
