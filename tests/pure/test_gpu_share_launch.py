"""Shares of a GPU under the node's lock: the launch script in real shells, with a stand-in for docker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import Refused
from agentless.model.containers.claim import GPU_MEMORY, GPU_SHARE
from agentless.model.tasks.task import Assigning, Placement, Task
from tests.pure.build import NOW, uuid
from tests.pure.test_gpu_share import GIB, shares
from tests.pure.test_launch_script import Node, in_each_shell, node, process
from tests.pure.test_plan import wish

pytestmark = pytest.mark.usefixtures("own_gpus")

__all__ = ["node"]  # a fixture


def assigning(name: str, target: str = "node1::0", **needs: Any) -> Task:
    return wish(name, target, needs=needs)


def launch(node: Node, of: Task, total: int = 22) -> str:
    """Launch it on a GPU with so many GiB."""
    indices = of.spec.needs.indices
    at = Placement("node1", indices, tuple(uuid("node1", index) for index in indices), gpu_total=total * GIB)
    of = replace(of, status=Assigning(at, NOW))
    return node.engine.parse_launch(of, node.result(node.start(of, at=at)))


@in_each_shell
def test_the_node_lets_in_as_many_as_the_least_willing_allows(node: Node) -> None:
    launch(node, assigning("t1", **shares(3)))
    launch(node, assigning("t2", **shares(2)))
    with pytest.raises(Refused, match=r"GPU 0 has no share left \(2 in use\)"):
        launch(node, assigning("t3", **shares(3)))
    assert sorted(node.containers()) == ["agentless-t1", "agentless-t2"]


@in_each_shell
def test_the_node_lets_nobody_in_whose_floor_does_not_fit(node: Node) -> None:
    launch(node, assigning("t1", **shares(3, 12)))
    with pytest.raises(Refused, match="no share left"):
        launch(node, assigning("t2", **shares(3, 11)))
    assert launch(node, assigning("t3", **shares(3, 10)))


@in_each_shell
def test_a_claim_that_is_seen_in_two_places_is_one_share(node: Node) -> None:
    gpu, container = uuid("node1", 5), "a1" * 32
    with (
        process("conmon", "-c", container, "-n", f"agentless-t9.ann..2.{GIB}.{gpu}"),
        process("sh", f"agentless-claim={container}|x|Up|{gpu}||2|{GIB}|t9|ann"),
    ):
        assert launch(node, assigning("t1", "node1::5", **shares(2)))


@in_each_shell
@pytest.mark.parametrize(("there", "new"), [({}, shares()), (shares(), {})])
def test_the_node_lets_nobody_share_with_one_who_does_not(
    node: Node, there: dict[str, Any], new: dict[str, Any]
) -> None:
    launch(node, assigning("t1", **there))
    with pytest.raises(Refused, match="GPU 0 is held by task t1 of"):
        launch(node, assigning("t2", **new))


@in_each_shell
def test_on_each_of_several_gpus_there_has_to_be_a_share(node: Node) -> None:
    launch(node, assigning("t1", "node1::0,1", **shares()))
    launch(node, assigning("t2", "node1::1", **shares()))
    with pytest.raises(Refused, match=r"^[^;]*GPU 1 has no share left \(2 in use\)$"):
        launch(node, assigning("t3", "node1::0,1", **shares()))
    assert launch(node, assigning("t4", "node1::0", **shares()))


def test_where_the_memory_is_not_known_nobody_is_let_in_beside_another(node: Node) -> None:
    """The placement came from a version that did not write it down."""
    launch(node, assigning("t1", **shares()))
    with pytest.raises(Refused, match="no share left"):
        launch(node, assigning("t2", **shares()), total=0)


@in_each_shell
@pytest.mark.parametrize(
    "damage", [{GPU_SHARE: ""}, {GPU_SHARE: "x"}, {GPU_SHARE: "08"}, {GPU_MEMORY: ""}, {GPU_MEMORY: "9" * 16}]
)
def test_a_container_whose_labels_are_not_understood_has_its_gpu_alone(node: Node, damage: dict[str, str]) -> None:
    launch(node, assigning("t1", **shares()))
    there = node.containers()["agentless-t1"]
    there["labels"] |= damage
    node.put("agentless-t1", there)
    with pytest.raises(Refused, match="GPU 0 is held by task t1"):
        launch(node, assigning("t2", **shares()))


@in_each_shell
def test_a_second_launch_of_one_who_shares_finds_its_container(node: Node) -> None:
    first = launch(node, assigning("t1", **shares()))
    assert launch(node, assigning("t1", **shares())) == first


def test_of_three_launches_at_once_for_two_shares_exactly_two_win(node: Node) -> None:
    at = Placement("node1", (0,), (uuid("node1", 0),), gpu_total=22 * GIB)
    racers = [replace(assigning(f"t{n}", **shares()), status=Assigning(at, NOW)) for n in range(3)]
    running = [node.start(racer, at=at) for racer in racers]
    assert sorted(node.result(one).exit_code for one in running) == [0, 0, 75]
    assert len(node.containers()) == 2
