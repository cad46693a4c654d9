"""Who gives way if preemptible gangs have members on several nodes: compared with all sets of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.task import Running, Task
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.preemption.victims import Preemption
from agentless.rules.scheduling.timeline.node import NodeTimeline
from tests.pure.build import NOW
from tests.pure.test_gangs import gang, nodes_of
from tests.pure.test_plan import POLICIES, runs, wish
from tests.pure.test_preemption import lent

Unit = tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Crowd:
    """The preemptible tasks and gangs on some nodes, others there, and the task or gang that asks."""

    nodes: int
    gpus: int
    units: Sequence[Unit]
    others: Sequence[Task]
    asking: Sequence[Task]

    @property
    def on(self) -> Cluster:
        return nodes_of(self.nodes, *self.others, *(each for unit in self.units for each in unit), gpus=self.gpus)

    def starts_without(self, gone: Iterable[Unit]) -> bool:
        left = [unit for unit in self.units if unit not in gone]
        return bool(plan(replace(self, units=left).on, self.asking, NOW, POLICIES).starts)


def together(*tasks: Task) -> list[Task]:
    """Preemptible tasks as one gang."""
    names = tuple(each.id for each in tasks)
    return [
        replace(each, spec=replace(each.spec, gang=Gang(len(tasks), rank, names))) for rank, each in enumerate(tasks)
    ]


def lent_gang(name: str, *targets: str, since: float = 1000.0) -> list[Task]:
    return together(*(lent(f"{name}{rank}", target, since) for rank, target in enumerate(targets)))


def asked(found: Plan) -> list[str]:
    return sorted({victim for promise in found.promises.values() if promise for victim in promise.victims})


def look(nodes: int, there: list[Task], *queue: Task, gpus: int = 2) -> list[str]:
    return asked(plan(nodes_of(nodes, *there, gpus=gpus), queue, NOW, POLICIES))


def singles(*nodes: int) -> list[Task]:
    """Two young tasks on each of these nodes."""
    return [lent(f"s{node}{gpu}", f"node{node}::{gpu}", 1) for node in nodes for gpu in (0, 1)]


def test_a_gang_counts_once_for_all_of_its_nodes() -> None:
    there = [*lent_gang("v", "node1::0,1", "node2::0,1"), *singles(3, 4)]
    assert look(4, there, *gang("g", "2x", "2x")) == ["v0", "v1"]
    there = [*lent_gang("v", *(f"node{node}::0,1" for node in (1, 2, 3))), *singles(4, 5, 6)]
    assert look(6, there, *gang("g", "2x", "2x", "2x")) == ["v0", "v1", "v2"]


def test_a_gang_of_which_one_node_would_do_is_not_asked() -> None:
    there = [*lent_gang("v", "node1::0,1", "node2::0,1", since=1), lent("s", "node3::0,1", 5000)]
    assert look(4, there, *gang("g", "2x", "2x")) == ["s"]


def test_members_of_several_kinds() -> None:
    there = [*lent_gang("v", "node1::0", "node2::0,1"), runs("r", "node1::1"), *singles(3, 4)]
    assert look(4, there, *gang("g", "2x", "1x")) == ["v0", "v1"]


@pytest.mark.parametrize("tried", [1, 2])
def test_if_not_all_cases_are_compared_nobody_is_asked_in_vain(monkeypatch: pytest.MonkeyPatch, tried: int) -> None:
    monkeypatch.setattr("agentless.rules.scheduling.preemption.gang_victims.TRIED", tried)
    # At first sight, s and one member of the gang are as good as both members.
    there = [*lent_gang("v", "node2::0,1", "node3::0,1", since=9000), lent("s", "node1::0,1", 1)]
    assert look(3, there, *gang("g", "2x", "2x")) == ["v0", "v1"]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Two to four nodes with two or three GPUs."""
    nodes, gpus, number = draw(st.integers(2, 4)), draw(st.integers(2, 3)), count()
    others, alone, apart = list[Task](), list[Task](), list[tuple[int, Task]]()
    for node in range(1, nodes + 1):
        for target in targets(draw, node, gpus):
            kind, name = draw(st.sampled_from("saaaarf")), f"v{next(number)}"
            one = lent(name, target, draw(st.sampled_from([1.0, 10.0, 100.0])), grace=draw(st.sampled_from([0, 0, 3])))
            if kind == "s":
                alone.append(one)
            elif kind == "a":
                apart.append((node, one))
            elif kind == "r":
                others.append(runs(name, target))
    units = [*((each,) for each in alone), *gangs(draw, apart)]
    sizes = draw(st.lists(st.integers(1, gpus), min_size=1, max_size=min(3, nodes)))
    asking = gang("g", *(f"{size}x" for size in sizes)) if len(sizes) > 1 else [wish("g0", f"{sizes[0]}x")]
    return Crowd(nodes, gpus, units, others, asking)


def targets(draw: Any, node: int, gpus: int) -> Iterator[str]:
    gpu = 0
    while gpu < gpus:
        size = draw(st.integers(1, gpus - gpu))
        yield f"node{node}::{','.join(map(str, range(gpu, gpu + size)))}"
        gpu += size


def gangs(draw: Any, apart: list[tuple[int, Task]]) -> Iterator[Unit]:
    """Gangs of up to three members, on different nodes; who is left is alone."""
    left = draw(st.permutations(apart))
    while left:
        members, size = dict[int, Task](), draw(st.integers(2, 3))
        for node, one in list(left):
            if node not in members and len(members) < size:
                members[node] = one
                left.remove((node, one))
        yield tuple(together(*members.values())) if len(members) > 1 else tuple(members.values())


@settings(deadline=None, max_examples=60)
@given(crowds())
def test_nobody_else_would_be_cheaper(crowd: Crowd) -> None:
    compare(crowd)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(deadline=None, max_examples=1000)
@given(crowds())
def test_nobody_else_would_be_cheaper_in_many_cases(crowd: Crowd) -> None:
    compare(crowd)


def compare(crowd: Crowd) -> None:
    """With all sets of preemptible tasks and gangs: the fewest tasks, of these the least work."""
    found = plan(crowd.on, crowd.asking, NOW, POLICIES)
    names = asked(found)
    if found.starts:
        assert not names
        return
    if not names:
        assert not crowd.starts_without(crowd.units)
        return
    mine = [unit for unit in crowd.units if any(each.id in names for each in unit)]
    assert sorted(each.id for unit in mine for each in unit) == names
    assert crowd.starts_without(mine)
    for size in range(len(crowd.units) + 1):
        for others in combinations(crowd.units, size):
            if price(others) < price(mine):
                assert not crowd.starts_without(others)


def price(units: Iterable[Unit]) -> tuple[int, float]:
    there = [each for unit in units for each in unit]
    return len(there), sum(len(each.placement.gpus) * (NOW - began(each)) for each in there if each.placement)


def began(one: Task) -> float:
    assert isinstance(one.status, Running)
    return one.status.started_at


def test_a_node_is_only_looked_at_if_it_may_be_among_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[str]()
    fewest = Preemption.fewest

    def counted(self: Preemption, node: NodeTimeline, *args: Any, **more: Any) -> Any:
        looked.append(node.name)
        return fewest(self, node, *args, **more)

    monkeypatch.setattr(Preemption, "fewest", counted)
    there = [lent(f"s{node}", f"node{node}::0,1", 100 - node) for node in range(1, 51)]
    assert look(50, there, *gang("g", "2x", "2x")) == ["s49", "s50"]
    assert set(looked) == {"node49", "node50"}
