"""A node that Slurm manages gets no task, and says so wherever one asks; unless the inventory allows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentless.errors import Refused
from agentless.model.nodes.check import Check, VendorChecks
from agentless.model.nodes.cluster import Cluster, Observation
from agentless.model.nodes.node import EngineFacts, HostFacts
from agentless.rules.explain.obstacles import never, obstacles, refusal
from agentless.rules.nodes.checks import trials
from agentless.rules.nodes.checks.examine import examine
from agentless.rules.scheduling.plan import plan
from agentless.rules.views.publish import node_view
from tests.pure.build import NOW, cluster, seen, spec, task
from tests.pure.test_doctor import WELL
from tests.pure.test_plan import POLICIES

WORDS = (
    "Slurm manages node1 (slurmd runs there); submit to the Slurm cluster, or drain the node in Slurm and set "
    "allow: slurm"
)


def slurm(runs: bool | None = True, **changes: object) -> Observation:
    there = seen(**changes)
    assert there.host
    return replace(there, host=replace(there.host, slurmd=runs))


def doctor(known: Cluster) -> dict[str, Check]:
    return {check.name: check for check in examine(known.nodes["node1"], WELL, VendorChecks())}


@pytest.mark.parametrize("target", ["node1::0", "1x", "node1", "2xL4"])
def test_no_task_is_placed_there_and_the_refusal_says_why(target: str) -> None:
    """Not even one without GPUs, nor one that asks for a GPU by its number."""
    known, wanted = cluster(slurm()), task("a", target, "pending")
    assert plan(known, [wanted], NOW, POLICIES).starts == {}
    assert [str(each) for each in obstacles(known.nodes["node1"], wanted.spec, "me", NOW)] == [WORDS]
    assert WORDS in str(never(known, wanted.spec))
    assert isinstance(refusal(known, wanted.spec), Refused)


def test_its_node_and_its_gpus_say_why() -> None:
    known = cluster(slurm()).nodes["node1"]
    assert (node_view(known).state, node_view(known).reason) == ("degraded", WORDS)
    assert {(gpu.state, gpu.reason) for gpu in known.gpus} == {("unknown", WORDS)}
    assert trials.unfit(known) == f"skipped; {WORDS}"


def test_a_slurm_node_without_an_engine_names_slurm_and_one_that_is_away_its_absence() -> None:
    assert cluster(slurm(engine=EngineFacts(error="no docker"))).nodes["node1"].reason == WORDS
    away = cluster(slurm(error="no route"))
    assert (away.nodes["node1"].state, away.nodes["node1"].reason) == ("offline", "no route")
    assert never(away, spec()) is not None


def test_tasks_that_are_there_keep_their_gpus() -> None:
    here = cluster(slurm(), (task("t1", "node1::0"),)).nodes["node1"]
    assert [gpu.state for gpu in here.gpus] == ["allocated", "unknown"]


def test_the_inventory_may_allow_it_and_doctor_still_names_it() -> None:
    known = cluster(slurm(), allow_slurm=True)
    assert list(plan(known, [task("a", "node1::0", "pending")], NOW, POLICIES).starts) == ["a"]
    check = doctor(known)["slurmd"]
    assert (check.verdict, check.seen) == ("ok", "runs; the inventory allows tasks beside it")


def test_doctor_names_it_with_both_ways_out() -> None:
    check = doctor(cluster(slurm()))["slurmd"]
    assert (check.verdict, check.detail, check.here) == ("failed", WORDS, True)
    assert "allow: slurm" in check.fix


def test_where_it_is_not_known_doctor_says_so_and_says_nothing_where_slurm_is_not() -> None:
    hidden = doctor(cluster(seen(host=HostFacts(8, 1024, boot="b1"))))["slurmd"]
    assert hidden.verdict == "skipped"
    assert "slurmd" not in doctor(cluster(slurm(runs=False)))
