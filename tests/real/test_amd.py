"""AMD GPUs on a real engine: a container has the render nodes of its GPUs and `/dev/kfd`, and no other device."""

from __future__ import annotations

import pytest

from tests.lab.amd import AmdCard, AmdCards
from tests.real.cli import Cli, until

FIRST, SECOND = "79ccd55167a2124a", "04edfb117a17a07d"
LOOK = ("sh", "-c", "ls /dev/dri /dev/kfd 2>&1; id -G; exit 0")
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
    node.cards.set(AmdCard("0000:83:00.0", FIRST, 128), AmdCard("0000:a3:00.0", SECOND, 129), links={(0, 1): (11, 15)})
    yield node.cards
    node.cards.set()


def person(lab, node, name="amd", more=""):
    cli = Cli(lab, name, INVENTORY.format(lab=lab, node=node, more=more))
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus")].count("free"))
    return cli


@pytest.fixture
def agentless(lab, node, cards):
    cli = person(lab, node)
    yield cli
    cli.close()


def devices(cli: Cli, *words: str) -> list[str]:
    """What a task sees of devices, and its groups."""
    return cli("logs", cli.submit(*words, "--wait", "--", *LOOK)).out.split()


def test_a_task_gets_the_render_node_of_its_gpu_and_no_other(agentless):
    gpus = agentless.get("/v1/gpus")
    assert [gpu["uuid"] for gpu in gpus] == [f"AMD-{FIRST}", f"AMD-{SECOND}"]
    print(devices(agentless, "amd::1"))
    assert 0
