"""From an empty folder to a task on two GPUs and back, as the README walks it, on two real nodes."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from tests.real.cli import containers, fingerprint, inspect, until

ECHO = ("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")


# ---------------------------------------------------------------------- trust


def test_an_unknown_host_key_is_refused(newcomer):
    """And the reason names the fingerprint and the command that helps."""
    newcomer("init", "--all")
    node = newcomer.node("node1")
    assert node["state"] == "offline"
    assert fingerprint(newcomer.lab.nodes["node1"]) in node["reason"]
    assert "agentless nodes trust node1" in node["reason"]


def test_trust_shows_the_fingerprint_that_ssh_keygen_shows(newcomer):
    """And records nothing when nobody is there to compare it."""
    newcomer("init", "--all")
    done = newcomer("nodes", "trust", "node1", code=3)
    assert re.findall("SHA256:[^ \n]+", done.out) == [fingerprint(newcomer.lab.nodes["node1"])]
    assert "--yes" in done.err
    assert newcomer.node("node1")["state"] == "offline"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code", "state"), [("y", 0, "online"), ("n", 3, "offline")])
def test_trust_asks(newcomer, answer, code, state):
    newcomer("init", "--all")
    assert newcomer.terminal("nodes", "trust", "node1", typed=f"{answer}\n")[0] == code
    assert newcomer.node("node1")["state"] == state


def test_a_changed_host_key_is_refused_until_it_is_trusted(newcomer):
    """With both fingerprints, and a warning before it is recorded."""
    newcomer("init", "--all")
    newcomer("nodes", "trust", "node1", "--yes")
    node = newcomer.lab.nodes["node1"]
    before = fingerprint(node)
    node.new_host_key()
    after = fingerprint(node)
    reason = until(lambda: after in (reason := newcomer.node("node1")["reason"]) and reason)
    assert before in reason
    assert f"WARNING: the recorded key is {before}" in newcomer("nodes", "trust", "node1", "--yes").err
    assert newcomer.node("node1")["state"] == "online"


@pytest.mark.slow
def test_trust_all_asks_once_for_what_ssh_does_not_know(newcomer):
    """Of the two nodes one is in ~/.ssh/known_hosts, hashed."""
    newcomer("init", "--all")
    first, second = (newcomer.lab.nodes[name] for name in ("node1", "node2"))
    known = Path(newcomer.env["HOME"], ".ssh/known_hosts")
    known.write_text(f"{first.host} {(first.dir / 'host_key.pub').read_text()}")
    subprocess.run(["ssh-keygen", "-H", "-f", known], check=True, capture_output=True)
    code, screen = newcomer.terminal("nodes", "trust", "--all", typed="y\n", columns=200)
    assert code == 0
    assert re.findall("SHA256:[^ \n]+", screen) == [fingerprint(second)]
    assert screen.count("[y/N]") == 1
    assert [newcomer.node(name)["state"] for name in ("node1", "node2")] == ["online", "online"]


def test_trust_all_leaves_out_keys_that_have_changed_or_are_revoked(newcomer):
    newcomer("init", "--all")
    first, second = (newcomer.lab.nodes[name] for name in ("node1", "node2"))
    key = (second.dir / "host_key.pub").read_text()
    Path(newcomer.env["HOME"], ".ssh/known_hosts").write_text(f"{first.host} {key}@revoked * {key}")
    done = newcomer("nodes", "trust", "--all", "--yes", code=3)
    assert f"node1: WARNING: the host key of {first.host} has changed" in done.err
    assert f"node2: {second.host} presents a revoked host key" in done.err
    assert [newcomer.node(name)["state"] for name in ("node1", "node2")] == ["offline", "offline"]
    assert "revoked" in newcomer("nodes", "trust", "node2", "--yes", code=3).err


# ---------------------------------------------------------------------- the main job


@pytest.mark.slow
def test_the_newcomers_path(newcomer):
    """init, trust, gpus, submit, logs: with nothing but an ssh configuration, of which no file is written to."""
    newcomer("init", "--all")
    newcomer("nodes", "trust", "node1", "--yes")
    assert [g["state"] for g in newcomer.json("gpus", "node1")] == ["free", "free"]
    task = newcomer.submit("node1::0", "--image", "busybox", "--", "echo", "hello")
    newcomer("wait", task)
    assert newcomer("logs", task).out == "hello\n"
    assert not Path(newcomer.env["HOME"], ".ssh/known_hosts").exists()


def test_a_task_sees_its_gpus(agentless):
    """By UUID, which does not change across reboots."""
    task = agentless.submit("node1::0,1", "--", *ECHO)
    agentless("wait", task)
    assert agentless("logs", task).out == ",".join(agentless.lab.nodes["node1"].gpu_uuids) + "\n"


def test_a_gpu_is_not_given_twice(agentless):
    """The refusal names who holds it, and nothing is started."""
    task = agentless.submit("node1::0,1", "--", "sleep", "60")
    refused = agentless("submit", "node1::1", "--no-queue", "--", *ECHO, code=3)
    assert refused.out == ""
    assert f"held by task {task} of {agentless.task(task)['owner']}" in refused.err
    assert containers(agentless.lab.nodes["node1"]) == [f"agentless-{task}"]


def test_a_gpu_is_free_again_after_the_end(agentless):
    agentless("submit", "node1::0,1", "--wait", "--", "true")
    agentless("submit", "node1::1", "--wait", "--", "true")


def test_ps_shows_a_task_that_runs(agentless):
    task = agentless.submit("node1::0", "--name", "train", "--", "sleep", "60")
    _, line = agentless("ps").out.splitlines()
    assert line.split()[:3] == [task, "running", "node1::0"]
    assert "train" in line


def test_ps_shows_what_has_ended_only_when_asked(agentless):
    task = agentless.submit("node1", "--wait", "--json", "--", "true")
    task = agentless.json("ps", "--all")[-1]["id"]
    assert agentless.json("ps") == []
    assert agentless.task(task)["state"] == "completed"


# ---------------------------------------------------------------------- nothing is left


def test_nothing_is_left_on_a_node(lab, agentless):
    """No process, no file and no container of ours, after `rm` and `controller stop`."""
    node = lab.nodes["node1"]
    folders = (node.dir / "home", node.dir / "bin", Path("/root"))
    before = [set(os.listdir(folder)) for folder in folders]
    task = agentless.submit("node1::0", "-s", "TOKEN=secret", "--follow", "--", "echo", "x").split("\n")[0]
    task = agentless.json("ps", "--all")[-1]["id"]
    agentless("rm", task)
    agentless("controller", "stop")
    until(lambda: not node.leftovers())
    assert containers(node) == []
    assert [set(os.listdir(folder)) for folder in folders] == before
    for shared in ("/tmp", "/var/tmp", "/dev/shm"):  # the engines of other tests write there meanwhile
        assert [name for name in os.listdir(shared) if task in name] == []


# ---------------------------------------------------------------------- kill -9 between any two commands

TRAPS = "trap 'exit 7' TERM; echo begin; while :; do sleep .1; done"
LIFE = (
    ("submit", "node1::0,1", "--name", "t", "--", "sh", "-c", TRAPS),
    ("pause", "t"),
    ("resume", "t"),
    ("stop", "t"),
    ("submit", "node2", "--", "no-such-program"),
    ("rm", "t"),
)


@pytest.mark.slow
def test_kill_9_between_any_two_commands_changes_nothing(agentless):
    """The next controller shows the same tasks, the same log and the same GPUs as the one that was killed."""
    for words in LIFE:
        agentless(*words, code=None)
        before = until(lambda: _settled(agentless))
        agentless.kill_controller()
        assert _everything(agentless) == before, words


def _settled(agentless):
    """Everything, once the engine has said when it started the tasks: it knows better than who asked for it."""
    once = _everything(agentless)
    for task in once[0]:
        found = agentless.lab.nodes[task["node"] or "node1"].ask_docker("GET", f"/containers/{task['container']}/json")
        started = found.get("State", {}).get("StartedAt")
        if started and abs(_seconds(task["started_at"]) - _seconds(started)) > 0.001:
            return None
    return once if _everything(agentless) == once else None


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(f"{moment[:26].rstrip('Z')}+00:00").timestamp()


def _everything(agentless):
    gpus = [(g["node"], g["index"], g["state"], g["task"], g["owner"]) for g in agentless.get("/v1/gpus")]
    return agentless.get("/v1/tasks", ended=True), gpus, agentless("logs", "t", code=None)


@pytest.mark.slow
def test_a_task_that_ends_while_no_controller_lives_is_not_lost(agentless):
    """Its exit code and its log are there when somebody asks again."""
    task = agentless.submit("node1::0", "--", "sh", "-c", "sleep 1; echo end; exit 5")
    agentless.kill_controller()
    node = agentless.lab.nodes["node1"]
    until(lambda: inspect(node, task)["State"]["Status"] == "exited")
    assert agentless("wait", task, code=5).code == 5
    assert agentless("logs", task).out == "end\n"
    assert agentless.is_free()
