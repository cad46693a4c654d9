"""Preemption beside gangs and tasks that wait for others, which neither preempt nor hinder it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.model.tasks.task import Blocked, Ended, Pending, Running, Task
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.preemption import preempts
from agentless.rules.explain.waits import coming
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.tasks.preemptible import yields_of
from agentless.rules.workflows.progress import state_of
from tests.pure.build import CID, NOW, placement
from tests.pure.test_dependencies import blocked
from tests.pure.test_gangs import broken, gang, given_once, nodes_of, whole
from tests.pure.test_plan import POLICIES, places, promises, runs, wish
from tests.pure.test_preemption import WITHIN, at, crowded, lent, node, several, spare, victims
from tests.pure.test_promises import _end, _limited

# ---------------------------------------------------------------------- gangs


def look(on: Cluster, running: tuple[Task, ...], *queue: Task, before: Plan | None = None) -> Plan:
    return plan(on, order(queue), on.at, POLICIES, before, placed=[*running, *queue])


def test_a_gang_waits_until_preemptible_tasks_end_by_themselves_and_explain_says_so() -> None:
    there = lent("v", "node1::0", limit=1000), lent("w", "node2::0", limit=500)
    on, members = nodes_of(2, *there, gpus=1), gang("g", "1x", "1x")
    found = look(on, there, *members)
    assert (victims(found), promises(found)) == ({}, {"g0": ("node1", 940), "g1": ("node2", 940)})
    assert preempts(on, members[0], found.promises["g0"], {}) == (
        "preempts nobody: a gang waits until preemptible tasks end by themselves"
    )


def test_a_member_of_a_gang_gives_way_to_nobody_even_if_its_gpus_are_idle() -> None:
    member, alone = gang("g", "1x", "1x")[0], wish("t")
    status = Running(placement("node1::0"), CID, NOW)
    assert yields_of(replace(member, status=status), NOW) is None
    assert yields_of(replace(alone, status=status), NOW)


def test_a_preemptible_gang_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="--nodes and --preemptible cannot be combined"):
        check_spec(TaskSpec(("true",), image="busybox", gang=Gang(2), terms=Terms(preemptible=True)))


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


@pytest.mark.parametrize("waits", ["gang", "blocked"])
def test_it_does_not_fill_what_is_promised_to_one_that_may_not_ask_it_to_go(waits: str) -> None:
    r = runs("r", "node1::0", 0, 1000)
    queue = gang("g", "2x", "2x") if waits == "gang" else [blocked("b", "r", target="node1::0,1")]
    taken = runs("s", "node2::0,1", 0, 1000)
    on = nodes_of(2, r, taken)
    found = look(on, (r, taken), *queue, spare("p", "node1::1"))
    assert found.starts == {}
    assert places(look(on, (r, taken), wish("t", "node1::0,1"), spare("p", "node1::1"))) == {"p": "node1::1"}


def test_a_job_that_was_preempted_for_good_ends_its_workflow_like_one_that_was_stopped() -> None:
    ended = replace(wish("a"), status=Ended("preempted", NOW))
    assert state_of([ended, replace(wish("b"), status=Ended("completed", NOW))]) == "stopped"


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
            assert asks.spec.gang is None
            assert isinstance(asks.status, Pending)
        for each in [one for one in mixed if one.id in found.starts]:
            running[each.id] = replace(each, status=Running(found.starts[each.id], CID, now))
        given_once(running.values())
        mixed = [each for each in mixed if each.id not in found.starts]
        now += 10.0
        gone = data.draw(st.sets(st.sampled_from(sorted(running)), max_size=2)) if running else set()
        running = {name: each for name, each in running.items() if name not in gone}


@settings(deadline=None, max_examples=25)
@given(crowded(), st.data())
def test_promises_to_gangs_and_blocked_tasks_are_kept_beside_preemptible_ones(
    there: tuple[Cluster, tuple[Task, ...]], data: st.DataObject
) -> None:
    """Whatever ends, ends at its limit or before, and looks come at any time."""
    on, running = there[0], {each.id: _limited(each) for each in there[1]}
    sizes = st.sampled_from(["1x", "2x", "4x"])
    queue = gang("g", *[data.draw(sizes)] * 2, limit=data.draw(st.sampled_from([20.0, 60.0])))
    if sure := sorted(name for name in running if name.startswith("r")):
        queue.append(blocked("b", data.draw(st.sampled_from(sure)), target=data.draw(sizes), limit=30.0))
    spares = [spare(f"p{number}", data.draw(sizes)) for number in range(3)]
    ends = {name: _end(each, data.draw(st.sampled_from([1.0, 0.3]))) for name, each in running.items()}
    now, found = NOW, Plan()
    for _ in range(12):
        placed, mixed = [*running.values(), *queue, *spares], [*queue, *spares]
        before, found = found, plan(at(on, tuple(running.values()), now), mixed, now, POLICIES, found, placed=placed)
        assert not broken(before, found, queue, now)
        for each in [one for one in mixed if one.id in found.starts]:
            running[each.id] = replace(each, status=Running(found.starts[each.id], CID, now))
            limit = each.spec.terms.time_limit
            ends[each.id] = now + limit if limit else float("inf")
        queue = [each for each in queue if each.id not in found.starts]
        spares = [each for each in spares if each.id not in found.starts]
        coming_ends = [ends[name] for name in running if ends[name] < float("inf")]
        if not queue or not coming_ends:
            break
        now = max(now, min(coming_ends) - data.draw(st.sampled_from([0.0, 0.5, 3.0])))
        running = {name: each for name, each in running.items() if ends[name] > now}
        queue = [each for each in queue if each.spec.gang or _waits(each, running)]


def _waits(one: Task, running: dict[str, Task]) -> bool:
    """Whether what it waits for runs. Once that has ended, it may preempt."""
    return isinstance(one.status, Blocked) and any(each.on in running for each in one.status.on)
