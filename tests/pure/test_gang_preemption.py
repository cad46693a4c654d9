"""Gangs that preempt and are preempted, among others: always."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import HostFacts
from agentless.model.tasks.task import Blocked, Pending, Running, Task
from agentless.model.tasks.task_event import Assigned, Preempts
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.preemption.assignment import cheapest
from agentless.rules.scheduling.timeline.node import SOON
from agentless.rules.tasks.gangs.gangs import mates
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.preemptible import asked_at, yields_of
from tests.pure.build import CID, NOW, cluster, seen
from tests.pure.test_dependencies import blocked
from tests.pure.test_gangs import broken, gang, given_once, whole
from tests.pure.test_plan import POLICIES, runs, wish
from tests.pure.test_preemption import at, at_the_latest, crowded, lent, spare, without


def test_on_a_node_with_more_tasks_than_cores_nobody_is_asked_in_vain() -> None:
    """Its cores were fewer in the inventory than before; who wants no cores needs none of them."""
    own = {"cores": 12.0}
    there = (runs("r1", "node1::1", **own), runs("r2", "node1::2", **own), lent("v", "node2::0,1,2,3"))
    on = cluster({name: seen(name, 4, host=HostFacts(16, 65536)) for name in ("node1", "node2")}, there)
    assert plan(on, [wish("t", "node1::0")], NOW, POLICIES).starts
    members = gang("g", "1x", "1x")
    assert set(plan(on, members, NOW, POLICIES).places) == {"g0", "g1"}
    assert set(plan(without(on, there, ("v",)), members, NOW, POLICIES).starts) == {"g0", "g1"}
    wants = gang("g", "1x", "1x", cores=2.0)
    assert not plan(on, wants, NOW, POLICIES).places
    assert not plan(without(on, there, ("v",)), wants, NOW, POLICIES).starts


sizes = st.sampled_from(["1x", "1x", "2x", "3x", "4x"])


def of(members: list[Task], **terms: object) -> list[Task]:
    return [replace(one, spec=replace(one.spec, terms=replace(one.spec.terms, **terms))) for one in members]


@settings(deadline=None, max_examples=30)
@given(crowded(), sizes, sizes, st.data())
def test_the_fewest_give_way_to_a_gang(
    there: tuple[Cluster, tuple[Task, ...]], one: str, two: str, data: st.DataObject
) -> None:
    """Never more victims than needed, over both nodes, and none if it would not start."""
    on, tasks = there
    members = gang("g", one, two, limit=data.draw(st.sampled_from([None, 30.0])))
    found = plan(on, members, NOW, POLICIES)
    able = [each.id for each in tasks if (terms := yields_of(each)) and terms.since <= NOW]
    asked = tuple(dict.fromkeys(each for place in found.places.values() for each in place.victims))

    def starts(gone: tuple[str, ...]) -> bool:
        return bool(plan(without(on, tasks, gone), members, NOW, POLICIES).starts)

    assert len(found.places) in (0, 2)
    if asked and set(asked) <= set(able):
        assert not found.starts
        assert starts(asked)
        for size in range(len(asked)):
            assert not any(map(starts, combinations(able, size)))
    elif not found.starts and found.promises["g0"] is None:
        assert not starts(tuple(able))


@settings(deadline=None, max_examples=20)
@given(crowded(), st.data())
def test_gangs_among_others(there: tuple[Cluster, tuple[Task, ...]], data: st.DataObject) -> None:
    _play(there, data, looks=20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(deadline=None, max_examples=400)
@given(crowded(), st.data())
def test_gangs_among_others_in_many_cases(there: tuple[Cluster, tuple[Task, ...]], data: st.DataObject) -> None:
    _play(there, data, looks=50)


def _play(there: tuple[Cluster, tuple[Task, ...]], data: st.DataObject, *, looks: int) -> None:
    """Gangs of both kinds, blocked and preemptible tasks, with crashes; what ends, ends at its limit or before.

    A look comes when a task ends, and at other times.
    No half gang starts or is stopped, no GPU is given twice, promises are kept, and who asks gets the place.
    """
    draw, on = data.draw, there[0]
    running = {each.id: each for each in there[1]}
    limit = st.sampled_from([None, 20.0, 60.0])
    waiting = {each.id: each for each in gang("g", *[draw(sizes)] * 2, limit=draw(limit))}
    if draw(st.booleans()):
        waiting |= {each.id: each for each in gang("h", draw(sizes), draw(sizes), limit=draw(limit))}
    waiting |= {f"t{n}": wish(f"t{n}", draw(sizes), draw(limit)) for n in range(draw(st.integers(0, 2)))}
    waiting |= {each.id: each for each in of(gang("p", *[draw(sizes)] * 2), preemptible=True)}
    waiting |= {f"s{n}": spare(f"s{n}", draw(sizes)) for n in range(2)}
    if sure := sorted(name for name, each in running.items() if name.startswith("r") and each.spec.ends_within):
        waiting["b"] = blocked("b", draw(st.sampled_from(sure)), target=draw(sizes), limit=30.0)
    before, now, crashed = Plan(), NOW, False
    for _ in range(looks):
        for name, one in list(running.items()):
            if _ends_at(one) <= now or (name.startswith("r") and draw(st.integers(0, 9)) == 0):
                del running[name]
        if "b" in waiting and _is_ready(waiting["b"], running):
            waiting["b"] = replace(waiting["b"], status=Pending())
            before = Plan(promises={name: each for name, each in before.promises.items() if name != "b"})
            crashed = True  # who is new in the queue may delay those behind
        queue = order(waiting.values())
        placed = [*running.values(), *queue]
        found = plan(at(on, tuple(running.values()), now), queue, now, POLICIES, before, placed=placed)
        whole(found, queue)
        lasting = [one for one in queue if not one.spec.terms.preemptible]
        if not crashed:
            assert not broken(at_the_latest(before), found, lasting, now + SOON)
        for name, start in found.starts.items():
            one = waiting.pop(name)
            if place := one.kept_place:
                assert (start.node, set(start.gpu_uuids)) == (place.node, set(place.gpu_uuids))
            running[name] = replace(apply(one, Assigned(start), now), status=Running(start, CID, now))
        given_once(running.values())
        for members in {each.spec.gang.members for each in queue if each.spec.gang}:
            assert len(found.places.keys() & set(members)) in (0, len(members))
        for name, place in found.places.items():
            for victim in place.victims:
                assert running[victim].spec.terms.preemptible
                assert {each.id for each in mates(running[victim], running.get)} <= set(place.victims)
            waiting[name] = apply(waiting[name], Preempts(place), now)
        for one in list(waiting.values()):
            if place := one.kept_place:
                assert now <= place.until + 1e-6, "its place was promised for certain"
                early = draw(st.integers(0, 3)) == 0
                for victim in place.victims:
                    _give_way(running, victim, place.until, now, early=early)
        step = draw(st.sampled_from([0.5, 1.0, 2.0, 2.0]))
        crashed = draw(st.integers(0, 5)) == 0
        before = Plan() if crashed else found
        ends = [_ends_at(each) for each in running.values()]
        ends += [place.until for one in waiting.values() if (place := one.kept_place)]
        now = min([now + step, *(end for end in ends if end > now)])


def _ends_at(one: Task) -> float:
    assert isinstance(one.status, Running)
    within = one.spec.ends_within
    return math.inf if within is None else one.status.started_at + within


def _is_ready(one: Task, running: dict[str, Task]) -> bool:
    return isinstance(one.status, Blocked) and not any(each.on in running for each in one.status.on)


def _give_way(running: dict[str, Task], victim: str, until: float, now: float, *, early: bool) -> None:
    if (one := running.get(victim)) is None:
        return
    if not one.stop and now >= asked_at(one, until, 5.0):
        running[victim] = replace(one, stop="preempt")
    if early or now + 2.0 >= until:
        del running[victim]


@given(st.integers(1, 4), st.integers(0, 2), st.data())
def test_the_cheapest_assignment(rows: int, more: int, data: st.DataObject) -> None:
    cost = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
    line = st.lists(cost, min_size=rows + more, max_size=rows + more)
    costs = data.draw(st.lists(line, min_size=rows, max_size=rows))
    best = _by_trying(costs, rows + more)
    found = cheapest(costs)
    assert (found is None) == (best == math.inf)
    if found is not None:
        assert len(set(found)) == rows
        assert sum(costs[row][column] for row, column in enumerate(found)) == best


def _by_trying(costs: list[list[float]], columns: int, row: int = 0, used: frozenset[int] = frozenset()) -> float:
    if row == len(costs):
        return 0.0
    left = [column for column in range(columns) if column not in used]
    return min(costs[row][column] + _by_trying(costs, columns, row + 1, used | {column}) for column in left)
