"""AMD GPUs on a real engine: a container has the render nodes of its GPUs and `/dev/kfd`, and no other device."""

from __future__ import annotations

import json

import pytest

from tests.lab.amd import AmdCard, AmdCards
from tests.real.cli import Cli, until

FIRST, SECOND = "79ccd55167a2124a", "04edfb117a17a07d"
LOOK = ("sh", "-c", "ls /dev/dri /dev/kfd 2>/dev/null; id -G; exit 0")
INVENTORY = (
    "version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, image: busybox}}\n"
    "nodes:\n  amd: {{host: {node.host}{more}}}\n"
)


@pytest.fixture(scope="module")
def node(lab):
    (node,) = lab.add_nodes({"amd": 0})
    node.cards = AmdCards(node)
    yield node
    lab.retire("amd")


@pytest.fixture
def cards(node):
    """Two MI100s."""
    two(node)
    yield node.cards
    node.cards.set()


def two(node, renders=(128, 129)):
    first, second = renders
    node.cards.set(
        AmdCard("0000:83:00.0", FIRST, first), AmdCard("0000:a3:00.0", SECOND, second), links={(0, 1): (11, 15)}
    )


@pytest.fixture(scope="module")
def made(lab, node):
    clis = {}

    def make(more=""):
        if more not in clis:
            clis[more] = Cli(lab, f"amd{len(clis)}", INVENTORY.format(lab=lab, node=node, more=more))
        return clis[more]

    yield make
    for cli in clis.values():
        cli.close()


@pytest.fixture
def agentless(made, cards):
    return settled(made())


def settled(cli, count=2):
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus")].count("free") >= count)
    return cli


def seen(cli: Cli, *words: str) -> list[str]:
    """What a task sees of devices, and its groups."""
    return cli("logs", cli.submit(*words, "--wait", "--", *LOOK)).out.split()


def test_a_task_gets_the_render_node_of_its_gpu_and_no_other(agentless):
    gpus = agentless.get("/v1/gpus")
    assert [gpu["uuid"] for gpu in gpus] == [f"AMD-{FIRST}", f"AMD-{SECOND}"]
    assert seen(agentless, "amd::1") == ["/dev/kfd", "/dev/dri:", "renderD129", "0", "44", "109"]


def test_a_task_without_gpus_has_no_device_of_any(agentless):
    assert seen(agentless, "amd") == ["0"]


def test_all_gpus_of_a_node_are_found_by_their_model(agentless):
    assert seen(agentless, "--gpus", "2", "--gpu-type", "MI100")[2:4] == ["renderD128", "renderD129"]


def test_a_render_node_that_has_another_number_now_is_not_given(agentless, node):
    """As after a reboot, of which the controller has not heard: the ids are where they were, not the files."""
    two(node, (129, 128))
    assert seen(agentless, "amd::0")[2:3] == ["renderD129"]


def test_a_card_that_has_gone_is_not_replaced_by_its_neighbour(agentless, node):
    node.cards.set(AmdCard("0000:83:00.0", SECOND, 128))
    done = agentless("submit", "amd::0", "--no-queue", "--", "true", code=None)
    print(done)
    assert done.code
