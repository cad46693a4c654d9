"""Gangs in the plan: all members or none, now and in what is promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.task import Running, Task
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from tests.pure.build import CID, NOW, cluster, seen
from tests.pure.test_plan import POLICIES, clusters, later, limits, places, promises, runs, there, two_nodes, wish
from tests.pure.test_promises import until_all_have_started


def gang(name: str, *targets: str, limit: float | None = None, **fields: Any) -> list[Task]:
    """A gang that waits, with a member for each target."""
    names = tuple(f"{name}{rank}" for rank in range(len(targets)))
    return [
        wish(names[rank], target, limit, gang=Gang(len(targets), rank, names), **fields)
        for rank, target in enumerate(targets)
    ]


def nodes_of(count: int, *tasks: Task, gpus: int = 2) -> Cluster:
    return cluster({f"node{n}": seen(f"node{n}", gpus) for n in range(1, count + 1)}, tasks)


def look(on: Cluster, *queue: Task, **bounds: int) -> Plan:
    return plan(on, queue, NOW, POLICIES, **bounds)


def test_each_member_has_a_node_of_its_own() -> None:
    assert places(look(two_nodes(), *gang("g", "1x", "1x"))) == {"g0": "node1::0", "g1": "node2::0"}


def test_no_member_starts_where_another_one_does_not_fit() -> None:
    """There are three free GPUs, all on one node."""
    found = look(two_nodes(runs("t", "node2::0,1,2,3", 0, 50), runs("u", "node1::0", 0, 9)), *gang("g", "1x", "1x"))
    assert not found.starts
    assert promises(found) == {"g0": ("node1", 50), "g1": ("node2", 50)}


def test_a_gang_that_can_never_fit_is_promised_nothing() -> None:
    found = look(two_nodes(), *gang("g", "1x", "1x", "1x"))
    assert (found.starts, promises(found), set(found.promises)) == ({}, {}, {"g0", "g1", "g2"})


def test_members_with_targets_of_their_own_get_just_these() -> None:
    found = look(two_nodes(), *gang("g", "node2::3,1", "node1::0"))
    assert places(found) == {"g0": "node2::3,1", "g1": "node1::0"}


def test_members_of_different_needs_are_matched_with_nodes() -> None:
    """Rank 0 would do anywhere, and rank 1 only on node1."""
    busy = two_nodes(runs("t", "node2::0,1", 0, 50))
    assert places(look(busy, *gang("g", "1x", "3x"))) == {"g0": "node2::2", "g1": "node1::0,1,2"}


def test_a_gang_waits_while_one_of_its_members_is_not_in_the_queue() -> None:
    members = gang("g", "1x", "1x")
    found = look(two_nodes(), members[0], wish("a", "2x"))
    assert (set(found.starts), dict(found.promises)) == ({"a"}, {})


def test_nobody_delays_a_gang_by_starting_before_it() -> None:
    """It is promised both nodes in 50 s. A task of 40 s starts before it, one of 60 s does not."""
    on = two_nodes(runs("t", "node1::0,1,2,3", 0, 50), runs("u", "node2::0", 0, 50))
    found = look(on, *gang("g", "4x", "4x", limit=10), wish("long", "1x", 60), wish("short", "1x", 40))
    assert places(found) == {"short": "node2::1"}
    assert promises(found) == {"g0": ("node1", 50), "g1": ("node2", 50), "long": ("node2", 60)}


def test_the_promise_of_all_goes_where_one_gives_way() -> None:
    """First `A` was promised something later; now that it could start on node1, the gang behind it waits as a whole."""
    t, u = runs("t", "node1::0,1,2,3", 0, 50), runs("u", "node2::0,1,2,3", 0, 30)
    queue = [wish("a", "4x", 100), *gang("g", "2x", "2x", limit=10)]
    first = plan(two_nodes(t, u), queue, NOW, POLICIES)
    assert promises(first) == {"a": ("node2", 30), "g0": ("node1", 130), "g1": ("node2", 130)}
    again = plan(later(two_nodes(), [u], NOW + 1), queue, NOW + 1, POLICIES, first)
    assert set(again.starts) == {"a"}
    assert len({each and each.start for each in again.promises.values()}) == 1


def test_no_half_of_a_promise_is_left_when_a_pass_ends_before_the_gang() -> None:
    """`A` starts on node1 in place of one member, and the pass starts no more."""
    t, u = runs("t", "node1::0,1", 0, 100), runs("u", "node2::0,1,2,3", 0, 40)
    queue = [wish("a", "node1::0,1,2,3", 100), *gang("g", "2x", "2x", limit=10)]
    first = plan(two_nodes(t, u), queue, NOW, POLICIES)
    assert promises(first) == {"a": ("node1", 100), "g0": ("node1", 40), "g1": ("node2", 40)}
    again = plan(later(two_nodes(), [u], NOW + 1), queue, NOW + 1, POLICIES, first, starts=1)
    assert (set(again.starts), promises(again)) == ({"a"}, {})


def test_nor_when_another_gang_takes_one_of_its_places() -> None:
    t, u, v = runs("t", "node1::0,1", 0, 50), runs("u", "node2::0,1", 0, 20), runs("v", "node3::0,1", 0, 20)
    queue = [*gang("g", "node1::0,1", "node2::0,1", limit=100), *gang("h", "node2::0,1", "node3::0,1", limit=10)]
    first = plan(nodes_of(3, t, u, v), queue, NOW, POLICIES)
    assert {each and each.start and each.start - NOW for each in first.promises.values()} == {50, 20}
    again = plan(later(nodes_of(3), [v], NOW + 1), queue, NOW + 1, POLICIES, first, starts=2)
    assert (set(again.starts), promises(again)) == ({"g0", "g1"}, {})


def test_a_node_that_was_free_before_counts_only_if_it_is_still() -> None:
    """Node1 has two GPUs free until `a` has all of them, from 30 s on for 100 s. Node2 is free in 50 s."""
    t, u = runs("t", "node1::0,1", 0, 30), runs("u", "node2::0,1,2,3", 0, 50)
    found = look(two_nodes(t, u), wish("a", "node1::0,1,2,3", 100), *gang("g", "2x", "2x", limit=10))
    assert promises(found) == {"a": ("node1", 30), "g0": ("node1", 130), "g1": ("node2", 130)}


def test_a_gang_takes_the_places_that_others_behind_it_were_promised() -> None:
    t = runs("t", "node1::0,1,2,3", 0, 50)
    queue = [*gang("g", "3x", "3x", limit=100), wish("b", "node2", 100, needs={"gpus": 4})]
    u = runs("u", "node2::0,1,2,3", 0, 20)
    first = plan(two_nodes(t, u), queue, NOW, POLICIES)
    assert promises(first) == {"g0": ("node1", 50), "g1": ("node2", 50), "b": ("node2", 150)}
    again = plan(later(two_nodes(), [], NOW + 1), queue, NOW + 1, POLICIES, first)
    assert set(again.starts) == {"g0", "g1"}


def test_a_pass_starts_a_gang_whole_or_not() -> None:
    queue = [wish("a"), *gang("g", "1x", "1x"), wish("b")]
    assert set(look(two_nodes(), *queue, starts=2).starts) == {"a"}
    assert set(look(two_nodes(), *queue, starts=3).starts) == {"a", "g0", "g1"}
    assert set(look(two_nodes(), *queue[1:], starts=1).starts) == {"g0", "g1"}


def joined(**fabrics: str | None) -> Cluster:
    nodes = {name: NodeConfig(name, "h", fabric=fabric) for name, fabric in fabrics.items()}
    return survey(nodes, {name: seen(name, 2) for name in nodes}, (), NOW)


@pytest.mark.parametrize(
    ("size", "nodes"),
    [
        (2, ["b", "d"]),  # the smallest part that has two
        (3, ["a", "c", "f"]),
        (5, ["a", "b", "c", "d", "f"]),  # one pod has all
        (6, ["a", "b", "c", "d", "e", "f"]),
    ],
)
def test_members_are_near_each_other(size: int, nodes: list[str]) -> None:
    on = joined(a="p1/l1", b="p1/l2", c="p1/l1", d="p1/l2", e=None, f="p1/l1")
    assert sorted(at.node for at in look(on, *gang("g", *["1x"] * size)).starts.values()) == nodes


def test_members_stay_side_by_side_in_the_queue() -> None:
    """Two owners take turns, by gang."""
    queue = [replace(one, owner="ann") for name in "gh" for one in gang(name, "1x", "1x")]
    queue += [replace(wish("k"), owner="bob")]
    assert [one.id for one in order(queue)] == ["g0", "g1", "k", "h0", "h1"]


# ------------------------------------------------------------------ always


def whole(found: Plan, queue: Sequence[Task]) -> None:
    """No gang is split, and its members are on different nodes."""
    gangs = {one.spec.gang.members for one in queue if one.spec.gang}
    for members in gangs:
        starts = [found.starts[one] for one in members if one in found.starts]
        assert len(starts) in (0, len(members))
        told = [found.promises.get(one) for one in members]
        assert len({each and each.start for each in told}) == 1
        assert len({each is None for each in told}) == 1
        for spots in ([each.node for each in starts], [each.node for each in told if each]):
            assert len(set(spots)) == len(spots)


def given_once(running: Iterable[Task]) -> None:
    held = [gpu for one in running if one.placement and not one.spec.share for gpu in one.placement.gpu_uuids]
    assert len(held) == len(set(held))


def broken(before: Plan, found: Plan, queue: Sequence[Task], now: float) -> list[str]:
    """Who starts later than was promised, unless one that comes before starts now on a node of it, or of its gang."""
    taken: set[str] = set()
    late = []
    for one in queue:
        mates = one.spec.gang.members if one.spec.gang else (one.id,)
        was = [promise for mate in mates if (promise := before.promises.get(mate))]
        promise = found.promises.get(one.id)
        start = now if one.id in found.starts else promise and promise.start
        due = was[0].start if was and not any(each.node in taken for each in was) else None
        if due is not None and (start is None or start > max(due, now) + 1e-6):
            late.append(f"{one.id} has {start and start - NOW}, not {due - NOW}")
        if (at := found.starts.get(one.id)) and one.id == mates[-1]:
            taken |= {found.starts[mate].node for mate in mates if mate in found.starts} | {at.node}
    return late


@st.composite
def queues(draw: st.DrawFn) -> list[Task]:
    found, gpus = list[Task](), st.integers(0, 4)
    for number in range(draw(st.integers(1, 6))):
        size, count = draw(st.integers(1, 3)), draw(gpus)
        cores = draw(st.sampled_from([None, None, 4.0]))
        if size == 1:
            found.append(wish(f"q{number}", limit=draw(limits), cores=cores, needs={"gpus": count}))
            continue
        counts = [count] * size if draw(st.booleans()) else [draw(gpus) for _ in range(size)]
        members = gang(f"q{number}m", *["1x"] * size, limit=draw(limits), cores=cores)
        found += [
            replace(one, spec=replace(one.spec, needs=replace(one.spec.needs, gpus=count)))
            for one, count in zip(members, counts, strict=True)
        ]
    return found


@settings(deadline=None, max_examples=50)
@given(clusters(), queues())
def test_no_gang_is_split_in_one_look(on: Cluster, queue: list[Task]) -> None:
    found = plan(on, queue, NOW, POLICIES)
    whole(found, queue)
    given_once(
        [
            *there(on).values(),
            *[replace(one, status=Running(found.starts[one.id], CID, NOW)) for one in queue if one.id in found.starts],
        ]
    )


@settings(deadline=None, max_examples=50)
@given(clusters(), queues(), st.data())
def test_a_promise_to_a_gang_is_kept(on: Cluster, queue: list[Task], data: st.DataObject) -> None:
    """Whatever ends, ends at its limit or before, and looks come at any time."""
    for before, found, waiting, now in until_all_have_started(on, queue, data):
        whole(found, waiting)
        assert not broken(before, found, waiting, now)


@settings(deadline=None, max_examples=50)
@given(clusters(), queues())
def test_a_gang_that_would_start_on_idle_nodes_starts_or_is_promised_a_time(on: Cluster, queue: list[Task]) -> None:
    for members in {one.spec.gang.members for one in queue if one.spec.gang}:
        alone = [one for one in queue if one.id in members]
        if plan(later(on, [], NOW), alone, NOW, POLICIES).starts:
            found = plan(on, alone, NOW, POLICIES)
            assert found.starts or all(found.promises.values())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([0.0, 10.0, 20.0, 30.0]), min_size=2, max_size=6), st.data())
def test_a_gang_on_equal_nodes_is_promised_the_first_time_at_which_enough_are_free(
    ends: list[float], data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, len(ends)))
    busy = [runs(f"t{n}", f"node{n}::0", 0, end) for n, end in enumerate(ends, 1) if end]
    found = look(nodes_of(len(ends), *busy, gpus=1), *gang("g", *["1x"] * size, limit=10))
    if at := sorted(ends)[size - 1]:
        assert {start for _, start in promises(found).values()} == {at}
    else:
        assert len(found.starts) == size
