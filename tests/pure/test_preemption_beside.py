"""Preemption by gangs, of gangs, and beside tasks that wait for others."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Ended, Pending, Running, Task
from agentless.model.tasks.task_event import Preempts
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.preemption import as_one, preempts
from agentless.rules.explain.waits import coming
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.preemptible import yields_of
from agentless.rules.workflows.progress import state_of
from tests.pure.build import CID, NOW, placement
from tests.pure.test_dependencies import blocked
from tests.pure.test_explain_gangs import of_alike
from tests.pure.test_gangs import gang, given_once, nodes_of, whole
from tests.pure.test_plan import POLICIES, places, promises, runs, wish
from tests.pure.test_preemption import WITHIN, at, crowded, lent, node, several, spare, victims

# ---------------------------------------------------------------------- gangs


def look(on: Cluster, running: tuple[Task, ...], *queue: Task, before: Plan | None = None) -> Plan:
    return plan(on, order(queue), on.at, POLICIES, before, placed=[*running, *queue])


def test_a_gang_preempts_on_all_of_its_nodes_at_one_time() -> None:
    there = lent("v", "node1::0"), lent("w", "node2::0", grace=30)
    on, members = nodes_of(2, *there, gpus=1), gang("g", "1x", "1x")
    found = look(on, there, *members)
    assert victims(found) == {"g0": ("v",), "g1": ("w",)}
    assert promises(found) == {"g0": ("node1", 30 + WITHIN), "g1": ("node2", 30 + WITHIN)}
    told = as_one(members, found.promises)
    assert preempts(on, *told, {}) == "preempts task v and task w"


def test_the_place_of_each_member_is_kept_also_where_nobody_gives_way() -> None:
    there = (lent("v", "node1::0"),)
    found = look(nodes_of(2, *there, gpus=1), there, *gang("g", "1x", "1x"), wish("later"))
    assert (found.starts, victims(found)) == ({}, {"g0": ("v",), "g1": ()})
    assert {place.until for place in found.places.values()} == {NOW + WITHIN}


def test_nobody_gives_way_unless_the_whole_gang_fits_then() -> None:
    there = lent("v", "node1::0"), runs("r", "node2::0")
    on, members = nodes_of(2, *there, gpus=1), of_alike(*gang("g", "1x", "1x"))
    found = look(on, there, *members)
    assert victims(found) == {}
    assert preempts(on, *as_one(members, found.promises), {}) == (
        "preempts nobody: it would not start without the preemptible tasks either"
    )


def test_the_fewest_give_way_over_all_of_its_nodes() -> None:
    """Node1 would cost two, node2 one that has worked for long, node3 one, and node4 nobody."""
    there = (
        lent("a", "node1::0", 1), lent("b", "node1::1", 1), lent("c", "node2::0,1", 5000), lent("d", "node3::0,1", 9),
    )  # fmt: skip
    found = look(nodes_of(4, *there), there, *gang("g", *["2x"] * 3))
    assert sorted(each for place in found.places.values() for each in place.victims) == ["c", "d"]


def test_members_of_different_needs_get_the_nodes_where_the_fewest_give_way() -> None:
    there = lent("a", "node1::0", 1), lent("b", "node1::1", 1), lent("c", "node2::0,1", 5000)
    found = look(nodes_of(3, *there), there, *gang("g", "1x", "2x"))
    assert victims(found) == {"g0": ("a",), "g1": ()}


def test_a_gang_whose_place_is_kept_starts_there_as_a_whole() -> None:
    there = lent("v", "node1::0"), lent("w", "node2::0")
    on, members = nodes_of(2, *there, gpus=1), gang("g", "1x", "1x")
    first = look(on, there, *members)
    waiting = [apply(one, Preempts(first.places[one.id]), NOW) for one in members]
    one_left = look(at(on, there[1:], NOW + 1), there[1:], *waiting, wish("later"))
    assert (one_left.starts, victims(one_left)) == ({}, {})
    assert set(look(at(on, (), NOW + 2), (), *waiting, wish("later")).starts) == {"g0", "g1"}


def test_no_member_starts_alone_in_its_kept_place() -> None:
    there = (lent("v", "node1::0"),)
    first = look(nodes_of(2, *there, gpus=1), there, *(members := gang("g", "1x", "1x")))
    waiting = [apply(one, Preempts(first.places[one.id]), NOW) for one in members]
    assert look(nodes_of(2, gpus=1), (), waiting[1]).starts == {}


def test_a_gang_that_has_preempted_asks_nobody_else() -> None:
    there = (lent("v", "node1::0"),)
    spent = [replace(one, victims=("x",) * (one.id == "g0")) for one in gang("g", "1x", "1x")]
    assert victims(look(nodes_of(2, *there, gpus=1), there, *spent)) == {}


def test_a_member_of_a_gang_does_not_give_way_because_its_gpus_are_idle() -> None:
    member, alone = gang("g", "1x", "1x")[0], wish("t")
    status = Running(placement("node1::0"), CID, NOW)
    assert yields_of(replace(member, status=status), NOW) is None
    assert yields_of(replace(alone, status=status), NOW)


def lent_gang(name: str, *targets: str, since: float = 60.0) -> tuple[Task, ...]:
    """A preemptible gang that runs."""
    members = gang(name, *targets)
    return tuple(
        replace(lent(one.id, target, since), spec=replace(lent("", target).spec, gang=one.spec.gang))
        for one, target in zip(members, targets, strict=True)
    )


def test_a_preemptible_gang_gives_way_as_a_whole() -> None:
    there = lent_gang("v", "node1::0", "node2::0")
    found = look(nodes_of(2, *there, gpus=1), there, wish("t"), wish("u"))
    assert victims(found) == {"t": ("v0", "v1")}
    assert promises(found) == {"t": ("node1", WITHIN), "u": ("node2", WITHIN)}


def test_it_counts_as_many_tasks_as_it_has_members() -> None:
    there = *lent_gang("v", "node1::0", "node2::0", since=1), lent("w", "node3::0", 5000)
    assert victims(look(nodes_of(3, *there, gpus=1), there, wish("t"))) == {"t": ("w",)}


def test_it_stays_where_one_of_its_members_cannot_be_asked() -> None:
    there = lent_gang("v", "node1::0", "node2::0")
    for members in ((there[0], replace(there[1], stop="stop")), there[:1]):
        assert victims(look(nodes_of(2, *members, gpus=1), members, wish("t", "node1::0"))) == {}


def test_a_gang_preempts_a_gang() -> None:
    """And of two more no one, for which its going leaves no room."""
    there = *lent_gang("v", "node1::0", "node2::0"), lent("w", "node3::0", 1)
    found = look(nodes_of(3, *there, gpus=1), there, *gang("g", "1x", "1x"))
    assert {name: set(place.victims) for name, place in found.places.items()} == {
        "g0": {"v0", "v1"}, "g1": {"v0", "v1"},
    } or sum(len(set(place.victims)) for place in found.places.values()) == 3  # fmt: skip


def test_a_preemptible_gang_fills_what_is_promised_to_others() -> None:
    there = runs("r", "node1::0", 0, 1000), runs("s", "node2::0", 0, 1000)
    members = [replace(one, spec=replace(one.spec, terms=Terms(preemptible=True))) for one in gang("p", "1x", "1x")]
    found = look(nodes_of(2, *there), there, wish("t", "node1::0,1"), wish("u", "node2::0,1"), *members)
    assert places(found) == {"p0": "node1::1", "p1": "node2::1"}


def test_a_gang_takes_what_one_behind_it_was_promised_with_its_victim() -> None:
    """Without its GPU on node1, that one does not start when `v` could give way, so `v` need not for it."""
    there = lent("v", "node1::0", 60, min_run=200), runs("r", "node2::0,1", 0, 500)
    queue = *gang("g", "1x", "1x"), wish("t", "node1::0,1", 10)
    on = nodes_of(2, *there)
    first = look(on, there, *queue)
    assert promises(first) == {"g0": ("node1", 500), "g1": ("node2", 500), "t": ("node1", 140 + WITHIN)}
    found = look(at(on, there[:1], NOW + 1), there[:1], *queue, wish("u", "node1::0", 10), before=first)
    assert set(found.starts) == {"g0", "g1"}
    assert (found.promises["t"], found.places) == (None, {})
    assert found.promises["u"]
    assert found.promises["u"].victims == ("v",)


# ---------------------------------------------------------------------- tasks that wait for others


def test_a_blocked_task_preempts_nobody_until_it_is_pending() -> None:
    there = lent("v", "node1::0"), runs("a", "node1::1", 0, 50)
    one, on = blocked("b", "a", target="2x"), node(*there, gpus=2)
    assert victims(look(on, there, one)) == {}
    now = at(on, there[:1], NOW + 50)
    assert victims(look(now, there[:1], replace(one, status=Pending()))) == {"b": ("v",)}


def test_what_waits_for_a_preemptible_task_is_promised_an_estimate() -> None:
    """It may be preempted; then the next try is waited for."""
    for terms, about in ((Terms(preemptible=True), True), (Terms(preemptible=True, on_preempt="end"), False)):
        a = lent("a", "node1::0", 0, limit=50)
        a = replace(a, spec=replace(a.spec, terms=replace(terms, time_limit=50)))
        found = look(node(a, gpus=1), (a,), blocked("b", "a", limit=50)).promises["b"]
        assert found
        assert (found.start, found.about) == (NOW + 50, about)
        assert ("unless it is retried" in coming(a, None, NOW)) is about


def test_it_does_not_fill_what_is_promised_to_one_that_may_not_ask_it_to_go() -> None:
    """What waits for another one asks nobody, nor does one that has asked already. What others wait for is filled."""
    r, s = runs("r", "node1::0", 0, 1000), runs("s", "node2::0", 0, 1000)
    on = nodes_of(2, r, s)
    for one in (blocked("b", "r", target="node1::0,1"), replace(wish("b", "node1::0,1"), victims=("v",))):
        found = look(on, (r, s), one, wish("t", "node2::0,1"), spare("p"), spare("q"))
        assert places(found) == {"p": "node2::1"}


def test_it_fills_what_is_promised_to_a_gang_and_is_gone_in_time() -> None:
    r, s = runs("r", "node1::0", 0, 1000), runs("s", "node2::0", 0, 1000)
    members = gang("g", "2x", "2x")
    first = look(nodes_of(2, r, s), (r, s), *members, spare("p", "node1::1"))
    assert (places(first), promises(first)) == (
        {"p": "node1::1"}, {"g0": ("node1", 1000), "g1": ("node2", 1000)},
    )  # fmt: skip
    p = lent("p", "node1::1", 0)
    for after, asked in ((500, {}), (1000 - WITHIN, {"g0": ("p",), "g1": ()})):
        there = at(nodes_of(2, r, s), (r, s, p), NOW + after)
        found = look(there, (r, s, p), *members, before=first)
        assert (victims(found), promises(found)) == (asked, {"g0": ("node1", 1000), "g1": ("node2", 1000)})


def test_a_job_that_was_preempted_for_good_ends_its_workflow_so() -> None:
    ended = replace(wish("a"), status=Ended("preempted", NOW))
    assert state_of([ended, replace(wish("b"), status=Ended("completed", NOW))]) == "preempted"


# ---------------------------------------------------------------------- always


@settings(deadline=None, max_examples=25)
@given(crowded(), several, st.data())
def test_all_three_together(there: tuple[Cluster, tuple[Task, ...]], queue: list[Task], data: st.DataObject) -> None:
    """No half gang, no GPU twice, and nobody else than a pending task preempts."""
    sizes = st.sampled_from(["1x", "1x", "2x", "4x"])
    members = gang("g", *[data.draw(sizes)] * 2, limit=data.draw(st.sampled_from([None, 30.0])))
    waits = blocked("b", data.draw(st.sampled_from(["v0", "r0", "r1", queue[0].id])), target=data.draw(sizes))
    mixed = data.draw(st.permutations([*queue, *members, waits, spare("p"), spare("q", "2x")]))
    on, running, before, now = there[0], {each.id: each for each in there[1]}, Plan(), NOW
    for _ in range(8):
        ordered = order(mixed)
        placed = [*running.values(), *mixed]
        before = found = plan(at(on, tuple(running.values()), now), ordered, now, POLICIES, before, placed=placed)
        if any(each.spec.gang for each in mixed):
            whole(found, mixed)
        assert "b" not in found.starts
        for name in found.places:
            asks = next(each for each in mixed if each.id == name)
            assert isinstance(asks.status, Pending)
            assert not asks.spec.terms.preemptible
        assert len(found.places.keys() & {each.id for each in members}) in (0, len(members))
        for each in [one for one in mixed if one.id in found.starts]:
            running[each.id] = replace(each, status=Running(found.starts[each.id], CID, now))
        given_once(running.values())
        mixed = [each for each in mixed if each.id not in found.starts]
        now += 10.0
        gone = data.draw(st.sets(st.sampled_from(sorted(running)), max_size=2)) if running else set()
        running = {name: each for name, each in running.items() if name not in gone}
