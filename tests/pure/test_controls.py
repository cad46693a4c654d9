"""An engine without a control group gets no task that needs it, and everybody is told why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import Checkup
from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.gpu import GpuSample
from agentless.model.nodes.node import Control, EngineFacts, HostFacts, NodeConfig, NumaNode
from agentless.model.scheduling.needs import parse_target
from agentless.rules.explain.obstacles import never, obstacles, refusal
from agentless.rules.nodes.cgroup_limits import lacking, why_lacking
from agentless.rules.nodes.checks.examine import examine
from agentless.rules.scheduling.plan import plan
from agentless.rules.scheduling.policies.pack import cost
from tests.pure.build import NOW, READY, cluster, reading, seen, spec, task

WANTS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "memory",
        {"memory": 1 << 30},
        "node1::0",
        "Docker on node1 cannot limit memory: the memory control group is missing",
    ),
    ("cpu", {"cores": 2.0}, "node1::0", "Docker on node1 cannot limit cores: the cpu control group is missing"),
    ("cpuset", {}, "node1:0::0", "Docker on node1 cannot pin to a NUMA node: the cpuset control group is missing"),
]
in_each_way = pytest.mark.parametrize(("control", "wants", "target", "words"), WANTS, ids=[want[0] for want in WANTS])


def without(*controls: str, node: str = "node1") -> Any:
    facts = EngineFacts("28.2.2", toolkits=READY, containers=(), lacks=frozenset(controls))  # type: ignore[arg-type]
    return seen(node, engine=facts)


def starts(on: Cluster, target: str, **wants: Any) -> Any:
    wish = task("t1", state="pending", spec=spec(needs=parse_target(target), **wants))
    return plan(on, [wish], NOW, {None: cost}).starts.get("t1")


@in_each_way
def test_who_needs_it_is_refused_in_words_for_ever(
    control: str, wants: dict[str, Any], target: str, words: str
) -> None:
    on, wish = cluster(without(control)), spec(needs=parse_target(target), **wants)
    assert starts(on, target, **wants) is None
    assert words in str(refusal(on, wish))
    assert words in str(never(on, wish))


@in_each_way
def test_who_needs_it_goes_to_a_node_that_has_it(control: str, wants: dict[str, Any], target: str, words: str) -> None:
    del words
    on = cluster({"node1": without(control), "node2": seen("node2")})
    assert starts(on, target.replace("node1", "node2"), **wants).node == "node2"
    if not wants:
        return
    assert starts(on, "1x", **wants).node == "node2"


@in_each_way
def test_a_task_on_the_node_itself_needs_no_engine_for_it(
    control: str, wants: dict[str, Any], target: str, words: str
) -> None:
    del words
    wish = spec(needs=parse_target(target), image=None, container="NULL", **wants)
    assert wish.on_node_itself
    assert not obstacles(cluster(without(control)).nodes["node1"], wish, "me", NOW)


@pytest.mark.parametrize(
    ("control", "option"), [("memory", "--memory"), ("cpu", "--cores"), ("cpuset", "the NUMA node")]
)
def test_who_cannot_have_it_is_told_what_to_leave_out(control: Control, option: str) -> None:
    said = why_lacking(NodeConfig("node1", "node1.lab"), control)
    assert said.endswith(f"the {control} control group is missing; omit {option} or use another node")


def test_a_pause_that_cannot_be_had_is_nothing_to_leave_out() -> None:
    said = why_lacking(NodeConfig("node1", "node1.lab"), "freezer")
    assert said == "Docker on node1 cannot pause: the freezer control group is missing"


def test_however_little_of_it_is_wanted_it_is_lacking() -> None:
    engine = EngineFacts("28.2.2", lacks=frozenset({"memory", "cpu"}))
    assert lacking(engine, bare=False, cores=0.5, memory=1, numa=None) == ("memory", "cpu")


def test_who_needs_none_of_them_starts_without_any() -> None:
    on = cluster(without("memory", "cpu", "cpuset", "freezer"))
    found = starts(on, "node1::0")
    assert found.node == "node1"
    assert refusal(on, spec(needs=parse_target("node1::0"))) is None


@pytest.mark.parametrize(("controls", "cpus"), [((), "0-15"), (("cpuset",), None)])
def test_nobody_who_has_not_asked_for_it_is_pinned_where_the_engine_cannot(
    controls: tuple[str, ...], cpus: str | None
) -> None:
    bus = "00000000:01:00.0"
    found = replace(
        without(*controls),
        sample=GpuSample((reading("node1", 0, pci_bus_id=bus),), ()),
        host=HostFacts(32, 131072, (NumaNode(0, "0-15", (bus,)), NumaNode(1, "16-31"))),
    )
    assert starts(cluster(found), "node1::0").cpus == cpus


def test_doctor_names_what_is_missing_and_nothing_else() -> None:
    found = examine(cluster(without("memory", "cpuset")).nodes["node1"], Checkup(), VendorChecks())
    (limits,) = [check for check in found if check.verdict != "ok"]
    assert (limits.name, limits.verdict) == ("limits", "warning")
    assert limits.detail.startswith(
        "Docker cannot pin to a NUMA node, limit memory: missing control groups: cpuset, memory; "
    )
    healthy = examine(cluster(seen()).nodes["node1"], Checkup(), VendorChecks())
    assert all(check.name != "limits" for check in healthy)
