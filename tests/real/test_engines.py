"""Several engines on one node: a GPU that one has given away is refused by the others, which say who holds it."""

from __future__ import annotations

import pytest

from tests.lab import requirements
from tests.real.cli import Cli, until

SHARE = ("--gpu-share", "2", "--gpu-memory", "1G")


@pytest.fixture(scope="module")
def node(lab):
    (node,) = lab.add_nodes({"twin": 2})
    node.second = node.second_engine(lab._shared_network())
    yield node
    lab.retire("twin")


@pytest.fixture(scope="module")
def made(lab, node):
    clis = {}

    def make(name, docker="docker", user="root", image="busybox"):
        if name not in clis:
            clis[name] = Cli(
                lab,
                name,
                f"version: 1\ndefaults: {{user: {user}, identity_file: {lab.identity}, image: {image}}}\n"
                f"nodes:\n  twin: {{host: {node.host}, docker: {docker}}}\n",
                LOGNAME=name,
            )
        return clis[name]

    yield make
    for cli in clis.values():
        cli.close()


def settled(cli):
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus")] == ["free"] * 2)
    return cli


@pytest.fixture
def ann(made):
    """Uses the node's engine, as root."""
    return settled(made("ann"))


@pytest.fixture
def sam(made, node):
    """Uses a second engine of root's, which knows nothing of the first one's containers."""
    return settled(made("sam", node.second))


@pytest.fixture(scope="module")
def _bob(lab):
    return lab.add_user("bob", docker_group=True)


@pytest.fixture
def bob(made, _bob):
    """Uses the node's engine without being root."""
    return made("bob", user=_bob)


@pytest.fixture(scope="module")
def alice(lab, node, made):
    """Uses a rootless engine of her own; her login is in `login`."""
    login = lab.add_user("alice")
    cli = made("alice", node.rootless_engine(login), user=login)
    cli.login = login
    return cli


def refused(cli, *words):
    done = cli("submit", "twin::0", *words, "--no-queue", "--", "true", code=3)
    (line,) = done.err.splitlines()
    return line


@pytest.mark.slow
def test_a_gpu_of_another_engine_is_refused_with_its_owner(ann, sam):
    task = ann.submit("twin::0", "--", "sleep", "300")
    held = f"held by container {ann.task(task)['container'][:12]} (in another engine) of "
    assert refused(sam) == f"agentless: twin::0: GPU 0 is {held}{ann.task(task)['owner'].replace('-', '_')}"
    sam("submit", "twin::1", "--wait", "--", "true")
    ann("kill", task)
    sam("submit", "twin::0", "--wait", "--", "true")


def test_a_gpu_is_shared_across_engines_as_within_one(ann, sam):
    ann.submit("twin::0", *SHARE, "--", "sleep", "300")
    sam.submit("twin::0", *SHARE, "--", "sleep", "300")
    assert "GPU 0 has no share left" in refused(ann, *SHARE)


@pytest.mark.slow
def test_who_wants_the_node_alone_does_not_get_it_beside_another_engines_task(ann, sam):
    task = ann.submit("twin", "--", "sleep", "300")
    assert "twin cannot be shared with container" in refused(sam, "--exclusive")
    ann("kill", task)
    sam("submit", "twin::0", "--exclusive", "--wait", "--", "true")


def test_nothing_but_empty_groups_without_the_name_of_a_task_stays_behind(ann, node):
    task = ann.submit("twin::0", "--", "true")
    ann("wait", task)
    ann("rm", task)
    found = set(node.sh("find /sys/fs/cgroup -type d -name 'agentless_claim*' -exec basename {} ';'").stdout.split())
    assert found
    assert not any(task in name for name in found)
    assert node.sh("cat /proc/[0-9]*/cgroup | grep agentless_claim").stdout == ""


@pytest.mark.skipif(bool(requirements(podman=True)), reason="no podman")
def test_docker_and_podman_refuse_each_others_gpus(lab, node, ann, made):
    node.add_podman(lab._shared_network(), lab.root / "image.tar")
    pat = settled(made("pat", "podman", image="lab/busybox"))
    until(lambda: [gpu["uuid"] for gpu in ann.get("/v1/gpus")] == node.gpu_uuids)
    task = pat.submit("twin::0", "--", "sleep", "300")
    assert f"GPU 0 is held by task {task} of " in refused(ann)
    pat("kill", task)
    task = ann.submit("twin::0", "--", "sleep", "300")
    assert f"GPU 0 is held by container {ann.task(task)['container'][:12]} (in another engine) of " in refused(pat)
    ann("kill", task)
    pat("submit", "twin::0", "--wait", "--", "true")


@pytest.mark.slow
def test_an_engine_that_may_not_be_asked_degrades_the_node_until_it_is_accepted(bob, request):
    """It has come since the node was last looked at: the launch finds it."""
    settled(bob)
    alice = request.getfixturevalue("alice")
    holder = f"{alice.login} runs a Docker engine on twin (process "
    assert holder in refused(bob)
    seen = bob.node("twin")
    assert (seen["state"], seen["reason"].startswith(holder)) == ("degraded", True)
    assert f"accept_engines: [{alice.login}] in the inventory" in seen["reason"]
    assert seen["reason"] in [check["detail"] for check in bob.json("doctor", code=1)]
    accepted = f"docker: docker, accept_engines: [{alice.login}]"
    bob.write_inventory(bob.inventory.read_text().replace("docker: docker", accepted))
    settled(bob)("submit", "twin::0", "--wait", "--", "true")


@pytest.mark.slow
def test_root_is_told_what_a_rootless_engine_has_given_away(ann, alice):
    task = settled(alice).submit("twin::0", "--", "sleep", "300")
    assert f"GPU 0 is held by task {task} of {alice.task(task)['owner']}" in refused(ann)
    alice("kill", task)
    ann("submit", "twin::0", "--wait", "--", "true")


@pytest.mark.slow
def test_a_rootless_engine_is_told_what_roots_has_given_away(ann, alice):
    task = ann.submit("twin::0", "--", "sleep", "300")
    assert f"held by container {ann.task(task)['container'][:12]} (in another engine)" in refused(settled(alice))
