"""A Docker engine that is upgraded, or switched to the other image store, under tasks: nothing is lost or there twice.

What becomes of a task is what became of its container. `make faults` runs this, too.
"""

from __future__ import annotations

import pytest

from tests.lab import Kind
from tests.lab.roots import is_made
from tests.real.cli import Cli, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (is_made("sid") and is_made("trixie")), reason="no roots (make engines makes them)"),
]
TICKS = ("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep .2; done")


@pytest.fixture
def made(lab):
    clis = []

    def make(name, kind):
        node = lab.add_suite_node(name, kind)
        keys = f"user: root, identity_file: {lab.identity}, image: lab/busybox"
        clis.append((name, cli := Cli(lab, name, f"version: 1\nnodes:\n  {name}: {{host: {node.host}, {keys}}}\n")))
        return cli, node

    yield make
    for name, cli in clis:
        cli.close()
        lab.retire(name)


def running(cli, target):
    task = cli.submit(target, "--", *TICKS)
    until(lambda: cli.task(task)["state"] == "running" and cli("logs", task).out)
    return task


def version(cli, name):
    return str(cli.node(name)["docker"])


def test_a_task_ends_with_an_engine_that_is_upgraded_and_the_next_one_runs_on_the_new_one(made):
    cli, node = made("up", Kind("trixie"))
    task = running(cli, "up::0")
    node.stop_docker()
    node.upgrade("sid")
    node.start_docker()
    until(lambda: version(cli, "up").startswith("28."))
    found = until(lambda: (now := cli.task(task))["state"] not in ("running", "lost") and now)
    assert (found["state"], found["exit_code"]) == ("failed", 137), found
    assert cli("logs", task).out.startswith("1\n")
    cli("submit", "up::0", "--wait", "--", "true")


def test_a_task_outlives_the_upgrade_of_an_engine_with_live_restore(made):
    cli, node = made("live", Kind("trixie"))
    node.stop_docker()
    engine = node._engine
    engine.configure({"live-restore": True})
    node.start_docker()
    task = running(cli, "live::0")
    container = cli.task(task)["container"]
    engine.leave()
    node.upgrade("sid")
    engine.come_back()
    until(lambda: version(cli, "live").startswith("28."))
    until(lambda: cli.task(task)["state"] == "running")
    assert node.sh("docker ps --quiet --no-trunc").stdout.split() == [container]
    before = len(cli("logs", task).out)
    until(lambda: len(cli("logs", task).out) > before)
    assert cli("submit", "--no-queue", "live::0", "--", "true", code=3).err.count(task) == 1
    cli("stop", "--grace", "1", task)
    assert cli.task(task)["state"] == "stopped"
    cli("submit", "live::0", "--wait", "--", "true")


def test_a_task_in_the_other_store_is_lost_with_the_reason_and_found_when_the_store_is_back(lab, made):
    cli, node = made("turns", Kind())
    task = running(cli, "turns::0")
    switch(node, containerd=True)
    found = until(lambda: (now := cli.task(task))["state"] == "lost" and now)
    assert found["reason"].startswith("Docker on the node was switched to another image store"), found
    node._engine.load(lab.root / "image.tar")
    assert task in cli("submit", "--no-queue", "turns::0", "--", "true", code=3).err
    cli("submit", "turns::1", "--wait", "--", "true")
    switch(node, containerd=False)
    back = until(lambda: (now := cli.task(task))["state"] == "failed" and now)
    assert back["exit_code"] == 137, back
    assert cli("logs", task).out.startswith("1\n")
    cli("submit", "turns::0", "--wait", "--", "true")


def test_a_task_that_live_restore_keeps_through_a_switch_keeps_its_gpu(made):
    """Nobody can see its container, and it runs: no other task gets its GPU until somebody says so."""
    cli, node = made("kept", Kind())
    node.stop_docker()
    engine = node._engine
    engine.configure({"live-restore": True})
    node.start_docker()
    task = running(cli, "kept::0")
    engine.configure({"live-restore": True, "features": {"containerd-snapshotter": True}})
    engine.leave()
    engine.come_back()
    until(lambda: cli.task(task)["state"] == "lost")
    assert task in cli("submit", "--no-queue", "kept::0", "--", "true", code=3).err
    cli("rm", "--force", task)
    until(lambda: cli.gpu("kept::0")["state"] == "free")


@pytest.mark.parametrize("other", [{"features": {"containerd-snapshotter": True}}, {"storage-driver": "vfs"}], ids=str)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unseen"])
def test_a_task_keeps_its_gpu_whatever_was_switched_and_whether_or_not_a_controller_saw_it(made, other, watched):
    name = f"{'seen' if watched else 'dark'}{len(str(other))}"
    cli, node = made(name, Kind())
    node.stop_docker()
    engine = node._engine
    engine.configure({"live-restore": True})
    node.start_docker()
    task = running(cli, f"{name}::0")
    if not watched:
        cli.kill_controller()
    engine.configure({"live-restore": True, **other})
    engine.leave()
    engine.come_back()
    found = until(lambda: (now := cli.task(task))["state"] not in ("running", "paused") and now)
    assert found["state"] == "lost", found
    assert cli.gpu(f"{name}::0")["state"] != "free"


def test_rm_force_leaves_a_lost_task_whose_engine_does_not_answer(made):
    cli, node = made("mute", Kind())
    node.stop_docker()
    engine = node._engine
    engine.configure({"live-restore": True})
    node.start_docker()
    task = running(cli, "mute::0")
    node.cut()
    until(lambda: cli.task(task)["state"] == "lost", 150)
    engine.leave()
    node.restore()
    until(lambda: cli.node("mute")["state"] == "degraded", 150)
    assert cli("rm", "--force", task, code=None).code != 0
    assert cli.task(task)["state"] == "lost"
    engine.come_back()
    until(lambda: cli.task(task)["state"] == "killed")


def switch(node, *, containerd):
    node.stop_docker()
    node._engine.configure({"features": {"containerd-snapshotter": containerd}})
    node.start_docker()
