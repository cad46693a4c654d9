"""A GPU is never given twice: not by one controller, not by two, and not while somebody else uses it."""

from __future__ import annotations

import threading

import pytest

from tests.real.cli import Cli, containers, finish, inventory_of, until


@pytest.fixture(scope="module")
def _bobs(lab):
    cli = Cli(lab, "bob", LOGNAME="bob")
    yield cli
    cli.close()


@pytest.fixture
def bob(_bobs):
    """Somebody else with a controller of their own, which knows nothing of the first."""
    return _bobs.settle()


def refused(cli, target):
    """The one sentence with which a submit to this target is refused, and nothing starts."""
    before = containers(cli.lab.nodes["node1"])
    done = cli("submit", target, "--no-queue", "--", "true", code=3)
    assert done.out == ""
    assert containers(cli.lab.nodes["node1"]) == before
    (line,) = done.err.splitlines()
    return line


# ---------------------------------------------------------------------- why a GPU is refused


def test_a_gpu_that_a_task_holds(agentless):
    task = agentless.submit("node1::0", "--", "sleep", "60")
    assert refused(agentless, "node1::0") == (
        f"agentless: node1::0: GPU 0 is allocated: held by task {task} of {agentless.task(task)['owner']}"
    )


def test_a_gpu_that_a_paused_task_holds(agentless):
    task = agentless.submit("node1::0", "--", "sleep", "60")
    agentless("pause", task)
    assert f"held by task {task}" in refused(agentless, "node1::0")


def test_a_gpu_that_a_foreign_process_uses(agentless, node):
    pid = node.pid(node.add_process(0, ["sleep", "300"], memory_mib=2048))
    gpu = until(lambda: (gpu := agentless.gpu("node1::0"))["state"] == "foreign" and gpu)
    assert [(p["pid"], p["command"], p["memory_mib"]) for p in gpu["processes"]] == [(pid, "sleep 300", 2048)]
    assert refused(agentless, "node1::0") == (
        f"agentless: node1::0: GPU 0 is foreign: used by root's process {pid} (sleep 300, 2 GiB)"
        "; add --share to run beside it"
    )


def test_a_gpu_beside_it_is_not_concerned(agentless, node):
    node.add_process(0, ["sleep", "300"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    agentless("submit", "node1::1", "--wait", "--", "true")


@pytest.mark.slow
def test_a_gpu_is_free_again_when_the_process_has_ended(agentless, node):
    process = node.add_process(0, ["sleep", "300"])
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    process.kill()
    process.wait()
    until(lambda: agentless.gpu("node1::0")["state"] == "free")


def test_a_tasks_own_processes_are_not_foreign_to_it(agentless, node):
    """But they are when they use a GPU that the task does not hold."""
    task = agentless.submit("node1::0", "--", "sleep", "300")
    pid = int(node.sh(f"docker inspect -f '{{{{.State.Pid}}}}' agentless-{task}").stdout)
    node.use_gpu(0, pid)
    node.use_gpu(1, pid)
    until(lambda: agentless.gpu("node1::1")["state"] == "foreign")
    assert agentless.gpu("node1::0")["state"] == "allocated"


def test_a_gpu_that_the_admin_excludes(lab):
    cli = Cli(lab, "careful", inventory_of(lab, node1="exclude_gpus: [1]"))
    try:
        assert (
            refused(cli, "node1::1")
            == "agentless: no node can run node1::1: GPU 1 is excluded: excluded by the inventory"
        )
    finally:
        cli.close()


def test_a_gpu_that_is_not_there(agentless):
    line = refused(agentless, "node1::2")
    assert line == "agentless: no node can run node1::2: node1 has no GPU 2, only GPUs 0,1"


def test_a_gpu_whose_memory_cannot_be_read(agentless, node):
    """It is not taken for an idle one."""
    node.set_gpus([{"memory.used": "[Unknown Error]"}, {}])
    until(lambda: agentless.gpu("node1::0")["state"] == "unknown")
    assert refused(agentless, "node1::0") == "agentless: node1::0: GPU 0 is unknown: cannot read its memory"


def test_of_what_can_never_be_had_all_that_lasts_is_told_and_nothing_else(agentless, node):
    task = agentless.submit("node1::0", "--", "sleep", "60")
    line = refused(agentless, "node1:4::0,9")
    assert "no GPU 9" in line
    assert "no NUMA node 4" in line
    assert task not in line


def test_a_container_by_hand_is_no_claim(agentless, node):
    """Somebody's own container, without our labels, is told from a task by what uses the GPU."""
    node.sh("docker run -d --name own busybox sleep 300")
    node.use_gpu(0, int(node.sh("docker inspect -f '{{.State.Pid}}' own").stdout))
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")


# ---------------------------------------------------------------------- two controllers


def test_labels_that_a_container_lacks_claim_nothing(agentless, node):
    """As one of an earlier version, which wrote only those that apply."""
    node.sh(
        f"docker run --detach --label agentless.task=0old --label agentless.gpus={node.gpu_uuids[1]} busybox sleep 99"
    )
    until(lambda: agentless.gpu("node1::1")["task"] == "0old")
    agentless("submit", "node1::0", "--no-queue", "--wait", "--", "true")
    old = agentless.task("0old")
    assert (old["owner"], old["gpu_uuids"]) == ("unknown", [node.gpu_uuids[1]])


@pytest.mark.slow
def test_ps_shows_tasks_of_everybody(agentless, bob):
    """With their owner; `--mine` only one's own."""
    task = agentless.submit("node1::0", "--name", "theirs", "--", "sleep", "60")
    owner = agentless.task(task)["owner"]
    (seen,) = until(lambda: bob.json("ps"))
    assert (seen["id"], seen["name"], seen["owner"], seen["mine"]) == (task, "theirs", owner, False)
    assert bob.json("ps", "--mine") == []


def test_gpus_shows_tasks_of_everybody(agentless, bob):
    task = agentless.submit("node1::0", "--", "sleep", "60")
    gpu = until(lambda: (gpu := bob.gpu("node1::0"))["state"] == "allocated" and gpu)
    assert (gpu["task"], gpu["owner"]) == (task, agentless.task(task)["owner"])


def test_a_gpu_of_another_controllers_task_is_refused(agentless, bob):
    """Also in the first moment, when only the node knows of it."""
    task = agentless.submit("node1::0", "--", "sleep", "60")
    assert f"held by task {task} of {agentless.task(task)['owner']}" in refused(bob, "node1::0")


def test_a_gpu_is_refused_by_the_node_itself(agentless, bob, node):
    """A controller that has not looked since is told by the launch, which checks the claims on the node."""
    uuid = node.gpu_uuids[0]
    claim = f"--label agentless.task=2abcdefgh00 --label agentless.owner=eve@far --label agentless.gpus={uuid}"
    script = bob("submit", "node1::0", "--dry-run", "--", "true").out
    node.sh(f"docker run -d --name other {claim} busybox sleep 300")
    launched = node.sh(script)
    assert (launched.returncode, launched.stdout) == (75, f"held|{uuid}|2abcdefgh00|eve@far\n")


def test_a_task_on_the_image_of_one_that_shared_its_gpu_has_its_own_alone(agentless, bob, node):
    """An engine gives a container the labels of its image, too."""
    share = ("--gpu-share", "2", "--gpu-memory", "1G")
    first = agentless.submit("node1::0", *share, "--", "sleep", "60")
    node.sh(f"docker commit agentless-{first} lab/committed:1")
    agentless("kill", first)
    task = agentless.submit("node1::0", "--image", "lab/committed:1", "--", "sleep", "60")
    until(lambda: bob.gpu("node1::0")["state"] == "allocated")
    done = bob("submit", "node1::0", *share, "--no-queue", "--", "true", code=3)
    assert f"held by task {task} of {agentless.task(task)['owner']}" in done.err


def test_tasks_of_others_can_be_followed_and_ended(agentless, bob):
    task = agentless.submit("node1::0", "--", "sh", "-c", "echo hello; sleep 60")
    until(lambda: bob("logs", task, code=None).out == "hello\n")
    waiting = bob.start("wait", task)
    assert bob("kill", task).out == f"{task}  failed (137)\n"
    assert finish(waiting).code == 137
    until(agentless.is_free)


# ---------------------------------------------------------------------- races


def race(*racers):
    """Submits to one GPU at one moment; gives who won, with the task, and the losers' ends."""
    ended, gate = [], threading.Barrier(len(racers))

    def submit(cli):
        gate.wait()
        ended.append((cli, cli("submit", "node1::0", "--no-queue", "--", "sleep", "60", code=None)))

    threads = [threading.Thread(target=submit, args=(cli,)) for cli in racers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((winner, won),) = [(cli, done) for cli, done in ended if done.code == 0]
    return winner, won.out.strip(), [done for _, done in ended if done.code != 0]


ROUNDS = 5


def test_a_race_of_two_controllers_has_one_winner(agentless, bob, node):
    """In each round one gets the GPU, and the other a sentence that names the winner, and exit code 3."""
    for _ in range(ROUNDS):
        winner, task, (loser,) = race(agentless, bob)
        assert containers(node) == [f"agentless-{task}"]
        assert loser.code == 3
        assert f"held by task {task} of " in loser.err
        winner("rm", "--force", task)


def test_a_race_of_one_person_has_one_winner(agentless, node):
    _, task, losers = race(*[agentless] * 4)
    assert containers(node) == [f"agentless-{task}"]
    assert [loser.code for loser in losers] == [3] * 3


def test_a_task_that_lost_a_race_leaves_no_trace(agentless, bob, node):
    before = bob.json("ps", "--all")
    agentless.submit("node1::0", "--", "sleep", "60")
    refused(bob, "node1::0")
    assert [task for task in bob.json("ps", "--all") if task["mine"]] == [task for task in before if task["mine"]]
