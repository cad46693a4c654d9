"""Why a gang does not start: how many nodes it could have, what is wrong with the others, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Task
from agentless.model.view import ExplainView
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.explanation import when
from agentless.rules.explain.gangs import explanation_of_gang, kinds
from agentless.rules.nodes.gpu_exclusion import gated
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import plan
from tests.pure.build import NOW, process, seen, uuid
from tests.pure.test_exclusion import ILL
from tests.pure.test_gangs import gang, look, nodes_of, queues
from tests.pure.test_plan import POLICIES, clusters, runs, wish

PAIR = gang("g", "2x", "2x")


def explained(on: Cluster, members: list[Task], *queue: Task) -> ExplainView:
    found = look(on, *queue, *members)
    ahead = Ahead(queue, found.promises, POLICIES)
    return explanation_of_gang(on, members, "", found.promises.get(members[0].id), ahead)


def of_alike(*members: Task) -> list[Task]:
    return [
        replace(one, spec=replace(one.spec, gang=replace(its, alike=len(members))))
        for one in members
        if (its := one.spec.gang)
    ]


def three_of_five(**fields: Any) -> tuple[Cluster, list[Task]]:
    busy = runs("t", "node4::0", 0, 3600), runs("u", "node5::1", 0, 7200)
    return nodes_of(5, *busy), of_alike(*gang("g", *["2x"] * 5, **fields))


def test_it_says_how_many_nodes_there_are_and_why_the_others_are_missing() -> None:
    found = explained(*three_of_five())
    assert found.summary == "needs 5 nodes for 2x; 3 can start it now (node1, node2, node3)"
    assert [(each.node, each.text) for each in found.obstacles] == [
        ("node4", "needs 2 GPUs; 1 of 2 on node4 is free"),
        ("node5", "needs 2 GPUs; 1 of 2 on node5 is free"),
    ]
    assert found.expected_start


def test_fewer_nodes_fewer_gpus_and_the_ends_of_others_help() -> None:
    assert explained(*three_of_five()).helps == (
        "--nodes 3",
        "--gpus 1",
        "when task t of me@here ends and task u of me@here ends",
    )


def test_one_node_is_no_gang() -> None:
    on = nodes_of(2, runs("t", "node2::0"))
    assert "one node (without --nodes)" in explained(on, of_alike(*PAIR)).helps


def test_a_foreign_process_in_the_way_is_named() -> None:
    observations = {"node1": seen("node1"), "node2": seen("node2", processes=(process("node2", 1),))}
    on = survey({name: NodeConfig(name, name) for name in observations}, observations, (), NOW)
    found = explained(on, of_alike(*PAIR))
    assert found.helps[1:] == ("--gpus 1", "--share", "when the foreign process on GPU 1 of node2 ends")


def test_an_unhealthy_gpu_in_the_way_is_named_with_the_command() -> None:
    on = nodes_of(2)
    record = NodeRecord(gpus={uuid("node2", 0): ILL})
    found = explained(replace(on, nodes={**on.nodes, "node2": gated(on.nodes["node2"], record)}), of_alike(*PAIR))
    assert found.helps[-1] == (
        "when GPU 0 of node2 is healthy again, or resumed (agentless nodes resume node2 --gpu 0)"
    )


def test_a_reservation_in_the_way_is_named() -> None:
    observations = {name: seen(name) for name in ("node1", "node2")}
    reservation = Reservation("r1", "node2", (0,), "ann", NOW - 1, NOW + 3600)
    nodes = {name: NodeConfig(name, name) for name in observations}
    on = survey(nodes, observations, (), NOW, reservations=[reservation])
    found = explained(on, of_alike(*PAIR))
    assert found.helps[-1] == "when the reservation of node2::0 for ann ends"
    assert [each.node for each in found.obstacles] == ["node2"]


def test_too_few_nodes_of_the_kind_are_told_apart_from_those_that_are_busy() -> None:
    found = explained(nodes_of(3, runs("t", "node3::0")), of_alike(*gang("g", *["2x"] * 4)))
    assert found.summary == "needs 4 nodes for 2x; only 3 nodes can ever run it, and 2 can start it now (node1, node2)"
    assert found.helps == ("--nodes 2",)


def test_that_no_node_can_run_it_is_said_once() -> None:
    found = explained(nodes_of(2), of_alike(*gang("g", "9x", "9x")))
    assert found.summary == "needs 2 nodes for 9x; no node can ever run it"


def test_members_with_targets_are_told_by_target() -> None:
    found = explained(nodes_of(2, runs("t", "node2::0", 0, 60)), gang("g", "node1::0,1", "node2::0,1"))
    assert found.summary == "needs a node for node2::0,1; none can start it now"
    assert {each.node for each in found.obstacles} == {"node2"}
    assert found.helps[-1] == "when task t of me@here ends"


def test_what_is_promised_to_others_does_not_count_as_free() -> None:
    on = nodes_of(2, runs("t", "node1::0", 0, 60))
    found = explained(on, of_alike(*gang("g", "1x", "1x")), wish("a", "node1::0,1"))
    assert found.summary == "needs 2 nodes for 1x; 1 can start it now (node2)"
    assert "GPU 1 is free but promised to task a" in found.obstacles[0].details[0]


def test_those_without_a_limit_are_named_of_all_its_nodes() -> None:
    on = nodes_of(3, runs("t", "node2::0"), runs("u", "node3::1"))
    members = gang("g", *["2x"] * 3)
    told = look(on, *members).promises
    held = [(promise, one.spec) for one in members if (promise := told[one.id])]
    assert when(held[0][0], on, members[0].spec, gang=held) == (
        "starts on node1, node2 and node3 when task t of me@here and task u of me@here end "
        "(no time limit, so no estimate)"
    )


@pytest.mark.parametrize("ahead", [0, 2])
@settings(deadline=None, max_examples=40)
@given(clusters(), queues())
def test_who_misses_no_node_starts_and_what_is_said_to_help_does(ahead: int, on: Cluster, queue: list[Task]) -> None:
    """Every sentence comes from a trial with the plan."""
    for size, members in {one.spec.gang.size: one.spec.gang.members for one in queue if one.spec.gang}.items():
        mine = [one for one in queue if one.id in members]
        before = [one for one in queue if one.id not in members][:ahead]
        found = look(on, *before, *mine)
        view = explained(on, mine, *before)
        if set(members) <= set(found.starts):
            assert view.helps == ()
        elif fewer := next((each for each in view.helps if each.startswith("--nodes ")), None):
            count = int(fewer.split()[1])
            assert count < size
            short = of_alike(*gang("s", *["1x"] * count))
            alike = [replace(one, spec=replace(mine[0].spec, gang=one.spec.gang)) for one in short]
            assert plan(on, [*before, *alike], NOW, POLICIES).starts.keys() >= {one.id for one in alike}
        for kind in kinds(on, mine, Ahead(before, found.promises, POLICIES)):
            if kind.missing:
                assert not set(members) <= set(found.starts)
