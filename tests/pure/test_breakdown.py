"""When a node is tried again after a launch that failed for a reason of the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import NodeBroken
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node import Breakdown, NodeConfig
from agentless.model.nodes.node_record import Drain, NodeRecord
from agentless.model.scheduling.needs import parse_target
from agentless.rules.explain.obstacles import obstacles
from agentless.rules.nodes.breakdown import FIRST, LONGEST, failed, restarted
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies.pack import cost
from tests.pure.build import NOW, cluster, seen, spec, task

NO_TOOLKIT = "Docker on node1 cannot hand out NVIDIA GPUs"


ERROR = NodeBroken(NO_TOOLKIT, "gpus")


def broken(again: float = NOW, *, bare: bool = False, fault: Any = "gpus") -> Breakdown:
    return Breakdown(NO_TOOLKIT, fault, bare, again, FIRST)


def node(breakdown: Breakdown, *tasks: object) -> Node:
    return cluster(seen(broken=breakdown), tasks).nodes["node1"]  # type: ignore[arg-type]


def started(breakdown: Breakdown, *targets: str, **fields: object) -> list[str]:
    queue = [task(f"t{number}", target, "pending", **fields) for number, target in enumerate(targets)]
    return list(plan(cluster(seen(broken=breakdown)), queue, NOW, {None: cost}).starts)


def test_the_pauses_double_up_to_the_longest() -> None:
    now, pauses, found = NOW, list[float](), None
    for _ in range(8):
        found = failed(found, ERROR, now, bare=False)
        pauses.append(found.again - now)
        now = found.again
    assert pauses == [5, 10, 20, 40, 80, 160, LONGEST, LONGEST]


def test_launches_that_fail_together_count_once() -> None:
    first = failed(None, ERROR, NOW, bare=False)
    assert failed(first, ERROR, NOW + 1, bare=False) == first


def test_an_engine_that_comes_back_is_tried_soon_and_not_at_each_of_its_restarts() -> None:
    long = Breakdown(NO_TOOLKIT, "gpus", bare=False, again=NOW + 290, pause=LONGEST)  # it failed 10 s ago
    assert restarted(long) == replace(long, again=NOW - 10 + FIRST, pause=FIRST)
    fresh = failed(None, ERROR, NOW, bare=False)
    assert restarted(restarted(fresh)) == fresh


@pytest.mark.parametrize(
    ("fault", "bare", "tried_bare", "tried_gpus", "shows"),
    [
        ("gpus", False, False, True, True),
        ("gpus", False, False, False, False),
        ("gpus", False, True, True, False),
        ("start", False, False, False, True),
        ("start", False, True, False, False),
        ("start", True, True, False, True),
        ("start", True, False, True, False),
    ],
)
def test_only_a_start_of_the_kind_that_failed_shows_that_it_is_over(
    *, fault: str, bare: bool, tried_bare: bool, tried_gpus: bool, shows: bool
) -> None:
    assert broken(bare=bare, fault=fault).is_tried_by(bare=tried_bare, gpus=tried_gpus) is shows


def test_a_broken_node_is_degraded_whether_or_not_it_may_be_tried() -> None:
    for again in (NOW, NOW + 1):
        assert (node(broken(again)).state, node(broken(again)).reason) == ("degraded", NO_TOOLKIT)


def test_it_is_tried_when_its_time_has_come_by_one_task() -> None:
    assert started(broken(NOW + 1), "node1::0", "node1::1") == []
    assert started(broken(NOW), "node1::0", "node1::1") == ["t0"]


def test_it_is_tried_by_nobody_else_while_a_launch_is_under_way() -> None:
    assert node(broken(), task("t1", "node1::1", "running")).trial
    assert node(broken(), task("t1", "node1::1", "assigning")).trial is None


def test_it_is_not_tried_by_a_task_that_would_show_nothing() -> None:
    assert started(broken(), "node1", "node1::1") == ["t1"]


def test_a_drained_node_is_not_tried() -> None:
    record = NodeRecord(drain=Drain("ann", NOW))
    nodes = {"node1": NodeConfig("node1", "h")}
    assert survey(nodes, {"node1": seen(broken=broken())}, (), NOW, {"node1": record}).nodes["node1"].trial is None


@pytest.mark.parametrize(("again", "count"), [(NOW, 0), (NOW + 1, 1)])
def test_explain_names_it_as_long_as_the_task_may_not_try(again: float, count: int) -> None:
    wish = spec(needs=parse_target("node1::0"))
    found = [str(each) for each in obstacles(node(broken(again)), wish, "me", NOW)]
    assert found == [f"node1 is degraded: {NO_TOOLKIT}"] * count


def test_explain_names_it_to_a_task_that_would_show_nothing() -> None:
    (found,) = obstacles(node(broken()), spec(), "me", NOW)
    assert found.text == f"node1 is degraded: {NO_TOOLKIT}"
