"""Who gives way to whom: who is chosen, and what everybody is promised meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.nodes.node import HostFacts
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Ended, KeptPlace, Pending, Running, Task
from agentless.model.tasks.task_event import Assigned, Preempts
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.preemption import awaited, may_be_preempted, preempts
from agentless.rules.nodes.survey import survey
from agentless.rules.scheduling.order import order
from agentless.rules.scheduling.plan import Plan, plan
from agentless.rules.scheduling.timeline.kept import LATE
from agentless.rules.scheduling.timeline.node import SOON
from agentless.rules.scheduling.timeline.reservations import in_the_way
from agentless.rules.tasks.lifecycle import apply
from agentless.rules.tasks.preemptible import LEEWAY, asked_at, awaited_by, yields_of
from tests.pure.build import CID, NOW, cluster, placement, process, seen, spec, task
from tests.pure.test_max_parallel import of
from tests.pure.test_plan import POLICIES, places, promises, runs, wish
from tests.pure.test_promises import broken

WITHIN = LEEWAY
"""Tasks here have no grace time."""


def lent(name: str, target: str, since: float = 60.0, **more: Any) -> Task:
    """A preemptible task that has run for so long."""
    terms = Terms(preemptible=True, time_limit=more.pop("limit", None), min_run=more.pop("min_run", None))
    grace = more.pop("grace", 0)
    wanted = spec(needs=parse_target(target), terms=terms, stop_grace=grace, **more)
    return replace(task(name, target, spec=wanted), status=Running(placement(target), CID, NOW - since))


def spare(name: str, target: str = "1x", **more: Any) -> Task:
    """A preemptible task that waits."""
    one = wish(name, target, **more)
    return replace(one, spec=replace(one.spec, terms=replace(one.spec.terms, preemptible=True)))


def node(*tasks: Task, gpus: int = 4, **more: Any) -> Cluster:
    return cluster(seen(gpus=gpus, **more), tasks)


def look(on: Cluster, *queue: Task, before: Plan | None = None) -> Plan:
    return plan(on, order(queue), on.at, POLICIES, before)


def at(on: Cluster, tasks: tuple[Task, ...], moment: float) -> Cluster:
    """The same nodes at another time with these tasks."""
    nodes = {name: each.config for name, each in on.nodes.items()}
    observed = {name: replace(each.observation, sampled_at=moment) for name, each in on.nodes.items()}
    reservations = [one for each in on.nodes.values() for one in each.reservations]
    return survey(nodes, observed, tasks, moment, reservations=reservations)


def victims(found: Plan) -> dict[str, tuple[str, ...]]:
    return {name: place.victims for name, place in found.places.items()}


# ---------------------------------------------------------------------- who is chosen

ALL = (lent("a", "node1::0", 90), lent("b", "node1::1", 30), lent("c", "node1::2", 60), lent("d", "node1::3", 120))


def test_the_youngest_gives_way_and_its_place_is_promised_for_certain() -> None:
    found = look(node(*ALL), wish("t"))
    assert (victims(found), promises(found)) == ({"t": ("b",)}, {"t": ("node1", WITHIN)})
    promise = found.promises["t"]
    assert promise
    assert promise.firm
    assert (promise.victims, found.places["t"].gpu_uuids) == (("b",), promise.gpu_uuids)


def test_as_few_as_possible_give_way() -> None:
    large = lent("large", "node1::2,3", 5000)
    assert victims(look(node(lent("a", "node1::0", 1), lent("b", "node1::1", 1), large), wish("t", "2x"))) == {
        "t": ("large",)
    }


def test_of_as_many_those_who_have_done_the_least_work() -> None:
    pair = lent("pair", "node1::0,1", 40)
    assert victims(look(node(pair, lent("c", "node1::2", 60)), wish("a", "node1::3"), wish("t"))) == {"t": ("c",)}


def test_nobody_gives_way_where_there_is_room() -> None:
    found = look(node(*ALL[:3]), wish("t"))
    assert (places(found), found.places) == ({"t": "node1::3"}, {})


def test_nobody_gives_way_if_that_does_not_help() -> None:
    assert victims(look(node(*ALL[:3], runs("r", "node1::3")), wish("t", "4x"))) == {}


def test_nobody_gives_way_to_one_who_starts_as_soon_without() -> None:
    assert victims(look(node(*ALL[:3], runs("r", "node1::3", limit=WITHIN)), wish("t"))) == {}


def test_neither_priority_nor_a_preemptible_task_preempts() -> None:
    others = tuple(runs(f"r{gpu}", f"node1::{gpu}") for gpu in range(4))
    eager = wish("t")
    eager = replace(eager, spec=replace(eager.spec, terms=Terms(priority=1000)))
    assert victims(look(node(*others), eager)) == {}
    assert victims(look(node(*ALL), spare("t"))) == {}


def test_nobody_gives_way_twice_and_each_gets_a_place_of_its_own() -> None:
    found = look(node(*ALL), *(wish(f"t{n}") for n in range(5)))
    chosen = [each for place in found.places.values() for each in place.victims]
    assert (sorted(chosen), found.promises["t4"]) == (["a", "b", "c", "d"], found.promises["t4"])
    uuids = [uuid for place in found.places.values() for uuid in place.gpu_uuids]
    assert len(uuids) == len(set(uuids)) == 4


def test_what_a_large_one_leaves_is_enough_for_the_next() -> None:
    found = look(node(lent("large", "node1::0,1,2,3")), wish("t"), wish("u"))
    assert (victims(found), promises(found)) == (
        {"t": ("large",)},
        {"t": ("node1", WITHIN), "u": ("node1", WITHIN)},
    )


def test_it_asks_itself_if_the_one_does_not_need_the_place_any_more_that_was_to_ask() -> None:
    on = node(lent("large", "node1::0,1,2,3"))
    first = look(on, wish("t"), wish("u"))
    assert first.promises["u"]
    assert (first.promises["u"].victims, first.promises["u"].firm) == (("large",), True)
    found = look(on, wish("u"), before=first)
    assert (victims(found), promises(found)) == ({"u": ("large",)}, {"u": ("node1", WITHIN)})


@pytest.mark.parametrize("one", [spare("u"), replace(wish("u"), victims=("x",))])
def test_who_may_ask_nobody_is_not_certain_of_what_the_victim_of_another_one_leaves(one: Task) -> None:
    found = look(node(lent("large", "node1::0,1,2,3")), wish("t"), one)
    told = found.promises["u"]
    assert told
    assert (promises(found)["u"], told.about, told.victims) == (("node1", WITHIN), True, ())


def test_what_one_leaves_and_another_one_are_put_together() -> None:
    there = (lent("v", "node1::0,1", 10), lent("w", "node1::2", 5000), runs("r", "node1::3"))
    found = look(node(*there), wish("t1", limit=9), wish("t2", "2x"))
    assert victims(found) == {"t1": ("v",), "t2": ("w", "v")}


def test_cores_memory_and_whole_nodes_are_given_up_too() -> None:
    small = {"host": HostFacts(8, 65536)}
    busy = lent("v", "node1::0", cores=6.0)
    assert victims(look(node(busy, lent("w", "node1::1"), **small), wish("t", cores=4.0))) == {"t": ("v",)}
    whole = wish("t", "node1", needs={"exclusive": True, "gpus": 0})
    assert victims(look(node(*ALL[:2]), whole)) == {"t": ("b", "a")}
    assert victims(look(node(*ALL[:2], runs("r", "node1::2")), whole)) == {}


def test_a_gpu_that_strangers_use_is_not_worth_a_victim() -> None:
    there = process("node1", 0)
    assert victims(look(node(lent("a", "node1::0"), gpus=1, processes=(there,)), wish("t"))) == {}


def test_a_task_of_another_kind_of_gpu_keeps_its_own() -> None:
    assert victims(look(node(*ALL), wish("t", "1xH100"))) == {}


# ---------------------------------------------------------------------- time


def test_nobody_gives_way_before_the_others_end_that_are_in_the_way() -> None:
    there = (*ALL[:3], runs("r", "node1::3", limit=30))
    found = look(node(*there), wish("t", "4x"))
    assert (victims(found), promises(found)) == ({}, {"t": ("node1", 30)})
    assert found.promises["t"]
    assert sorted(found.promises["t"].victims) == ["a", "b", "c"]
    found = look(at(node(*there), there, NOW + 30 - WITHIN), wish("t", "4x"), before=found)
    assert sorted(victims(found)["t"]) == ["a", "b", "c"]


def test_before_its_least_time_is_over_a_place_is_promised_for_then() -> None:
    on = node(lent("a", "node1::0", 60, min_run=600), gpus=1)
    found = look(on, wish("t"))
    assert (victims(found), promises(found)) == ({}, {"t": ("node1", 540 + WITHIN)})
    later = at(on, (lent("a", "node1::0", 60, min_run=600),), NOW + 500)
    again = look(later, wish("t"), before=found)
    assert (victims(again), promises(again)) == ({}, {"t": ("node1", 540 + WITHIN)})
    now = look(at(on, (lent("a", "node1::0", 60, min_run=600),), NOW + 540), wish("t"), before=again)
    assert (victims(now), promises(now)) == ({"t": ("a",)}, {"t": ("node1", 540 + WITHIN)})


def test_one_that_may_be_asked_now_comes_before_one_that_may_not() -> None:
    found = look(node(lent("a", "node1::0", 5, min_run=600), lent("b", "node1::1", 5000), gpus=2), wish("t"))
    assert victims(found) == {"t": ("b",)}


@pytest.mark.parametrize("cores", [None, 4.0])
def test_at_a_later_time_nobody_gives_way_in_place_of_those_who_have_ended_by_then(cores: float | None) -> None:
    there = (
        runs("r", "node1::0", 0, 30, cores=cores),
        lent("a", "node1::1", 60, min_run=200, cores=cores and cores / 2),
        lent("b", "node1::2", 90, min_run=230, cores=cores and cores / 2),
    )
    on = node(*there, gpus=3, host=HostFacts(8, 65536))
    told = look(on, wish("t", "2x", cores=cores)).promises["t"]
    assert told
    assert (told.start, told.victims) == (NOW + 140 + WITHIN, ("a",))


def test_a_long_grace_time_is_part_of_the_promise() -> None:
    assert promises(look(node(lent("a", "node1::0", grace=300), gpus=1), wish("t"))) == {"t": ("node1", 300 + LEEWAY)}


# ---------------------------------------------------------------------- kept places


def kept(one: Task, *names: str, gpu: int = 0, after: float = WITHIN) -> Task:
    place = KeptPlace("node1", placement(f"node1::{gpu}").gpu_uuids, names, NOW + after)
    return apply(one, Preempts(place), NOW)


def stopping(one: Task) -> Task:
    return replace(one, stop="preempt")


def test_while_they_go_the_place_is_kept_also_from_one_in_front() -> None:
    eager = wish("e")
    eager = replace(eager, spec=replace(eager.spec, terms=Terms(priority=1000)))
    found = look(node(stopping(ALL[0]), gpus=1), eager, kept(wish("t"), "a"))
    assert (found.starts, victims(found), promises(found)["t"]) == ({}, {}, ("node1", WITHIN))
    gone = look(node(gpus=1), eager, kept(wish("t"), "a"))
    assert places(gone) == {"t": "node1::0"}


@pytest.mark.parametrize("late", [0.0, 0.5, 34.5, 100.0])
def test_who_is_late_in_its_place_starts_before_the_one_whose_place_comes_after_it(late: float) -> None:
    first, second = kept(wish("b", limit=30.0), after=5.0), kept(wish("h"), after=35.0)
    now = NOW + 5.0 + late
    found = plan(at(node(gpus=1), (), now), [second, first], now, POLICIES)
    assert set(found.starts) == {"b"}
    assert NOW + 35.0 + late <= found.promises["h"].start <= NOW + 35.0 + late + SOON


def test_what_its_victim_leaves_besides_is_promised_to_others() -> None:
    found = look(node(stopping(lent("a", "node1::0,1")), gpus=2), kept(wish("t"), "a"), wish("u"))
    assert (promises(found), victims(found)) == ({"t": ("node1", WITHIN), "u": ("node1", WITHIN)}, {})


def test_a_task_with_a_place_starts_there_and_not_elsewhere() -> None:
    found = look(node(stopping(ALL[0])), kept(wish("t"), "a"))
    assert found.starts == {}


def test_if_the_node_is_away_it_starts_elsewhere_and_nobody_else_gives_way() -> None:
    two = {"node1": seen("node1", 1, error="cut off"), "node2": seen("node2", 1)}
    assert places(look(cluster(two, (stopping(ALL[0]),)), kept(wish("t"), "a"))) == {"t": "node2::0"}
    there = (stopping(ALL[0]), lent("z", "node2::0"))
    found = look(cluster(two, there), kept(wish("t"), "a"))
    assert (found.starts, victims(found)) == ({}, {})


def test_a_place_that_somebody_outside_took_is_waited_for() -> None:
    found = look(node(gpus=2, processes=(process("node1", 0),)), kept(wish("t"), "a"))
    assert (found.starts, promises(found)["t"][0]) == ({}, "node1")


def test_after_a_crash_the_place_is_still_kept() -> None:
    """A new controller has no earlier plan."""
    found = look(node(stopping(ALL[0]), gpus=1), wish("early"), kept(wish("t"), "a"))
    assert (promises(found)["t"], found.starts) == (("node1", WITHIN), {})


# ---------------------------------------------------------------------- reservations and promises


def test_it_runs_on_what_is_reserved_for_others_but_not_during_maintenance() -> None:
    for owner, starts in (("ann", {"p": "node1::0"}), (None, {})):
        reservation = Reservation("r1", "node1", (), owner, NOW - 10, NOW + 1000)
        nodes = {name: each.config for name, each in node(gpus=1).nodes.items()}
        on = survey(nodes, {"node1": seen(gpus=1)}, (), NOW, reservations=[reservation])
        assert places(look(on, spare("p"))) == starts
        assert places(look(on, wish("n"))) == {}


def test_it_gives_way_to_the_owner_of_the_reservation_only() -> None:
    reservation = Reservation("r1", "node1", (), "ann", NOW - 10, NOW + 1000)
    nodes = {name: each.config for name, each in node(gpus=1).nodes.items()}
    on = survey(nodes, {"node1": seen(gpus=1)}, (lent("v", "node1::0"),), NOW, reservations=[reservation])
    assert victims(look(on, wish("n"))) == {}
    assert victims(look(on, wish("n"), replace(wish("hers"), owner="ann@desk"))) == {"hers": ("v",)}


def test_it_fills_what_is_promised_to_others_and_is_gone_in_time() -> None:
    on = node(runs("r", "node1::0", limit=1000), gpus=2)
    first = look(on, wish("t", "2x"), spare("p"))
    assert (places(first), promises(first)) == ({"p": "node1::1"}, {"t": ("node1", 1000)})
    p = lent("p", "node1::1", 0)
    for after, asked in ((500, {}), (1000 - WITHIN, {"t": ("p",)})):
        found = look(at(on, (runs("r", "node1::0", limit=1000), p), NOW + after), wish("t", "2x"), before=first)
        assert (victims(found), promises(found)) == (asked, {"t": ("node1", 1000)})


def test_it_is_gone_for_the_first_of_several_whose_promised_places_it_fills() -> None:
    """Also if one in front needs its place later."""
    there = runs("q", "node1::2", 0, 100), runs("r", "node1::3", 0, 200)
    queue = wish("a", "4x"), wish("b", "3x", 50)
    first = look(node(*there), *queue, spare("p", "2x"))
    due = {"a": ("node1", 200), "b": ("node1", 100)}
    assert (places(first), promises(first)) == ({"p": "node1::0,1"}, due)
    there = (*there, lent("p", "node1::0,1", 0))
    found = look(at(node(*there), there, NOW + 1), *queue, before=first)
    assert (victims(found), promises(found)) == ({}, due)
    found = look(at(node(*there), there, NOW + 100 - WITHIN), *queue, before=found)
    assert (victims(found), promises(found)) == ({"b": ("p",)}, due)


def test_it_is_gone_also_for_one_that_waits_for_its_batch() -> None:
    mate, queue = of(runs("m", "node1::0", limit=1000)), order([of(wish("t", "2x")), spare("p")])
    on = node(mate, gpus=2)
    first = plan(on, queue, NOW, POLICIES, placed=[mate])
    assert (places(first), promises(first)) == ({"p": "node1::1"}, {"t": ("node1", 1000)})
    then = at(on, (mate, lent("p", "node1::1", 0)), NOW + 500)
    assert promises(plan(then, queue[:1], NOW + 500, POLICIES, first, placed=[mate])) == {"t": ("node1", 1000)}


def test_a_task_that_may_ask_nobody_any_more_is_not_hindered() -> None:
    spent = replace(wish("t", "2x"), victims=("v",))
    found = look(node(runs("r", "node1::0", limit=1000), gpus=2), spent, spare("p"))
    assert places(found) == {}


def test_a_task_whose_batch_is_at_its_limit_asks_nobody() -> None:
    mate = of(runs("m", "node1::0"))
    on = node(mate, lent("v", "node1::1"), gpus=2)
    found = plan(on, [of(wish("t"))], NOW, POLICIES, placed=[mate])
    assert victims(found) == {}


# ---------------------------------------------------------------------- always

grace = st.sampled_from([0.0, 0.0, 30.0])
least = st.sampled_from([None, None, None, 20.0, 200.0])


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Cluster, tuple[Task, ...]]:
    """Two nodes with GPUs that are mostly taken, by tasks of either kind. They may have more cores than the node."""
    tasks = []
    for name in ("node1", "node2"):
        gpu = 0
        while gpu < 4:
            size = draw(st.integers(1, 4 - gpu))
            target = f"{name}::{','.join(str(each) for each in range(gpu, gpu + size))}"
            kind, since = draw(st.sampled_from("lllrrf")), draw(st.sampled_from([1.0, 10.0, 100.0]))
            own = {"cores": draw(st.sampled_from([None, 2.0, 6.0]))}
            if kind == "l":
                tasks.append(lent(f"v{len(tasks)}", target, since, min_run=draw(least), grace=draw(grace), **own))
            elif kind == "r":
                tasks.append(runs(f"r{len(tasks)}", target, 0, draw(st.sampled_from([None, 50.0])), **own))
            gpu += size
    on = {name: seen(name, 4, host=HostFacts(16, 65536)) for name in ("node1", "node2")}
    return cluster(on, tuple(tasks)), tuple(tasks)


wanted = st.builds(
    lambda n, size, limit, cores: wish(f"t{n}", f"{size}x", limit, cores=cores),
    st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([None, 30.0, 500.0]), st.sampled_from([None, 8.0]),
)  # fmt: skip


def without(on: Cluster, tasks: tuple[Task, ...], gone: tuple[str, ...]) -> Cluster:
    return at(on, tuple(each for each in tasks if each.id not in gone), on.at)


@settings(deadline=None, max_examples=60)
@given(crowded(), wanted)
def test_never_more_than_needed_and_never_before_its_least_time(
    there: tuple[Cluster, tuple[Task, ...]], one: Task
) -> None:
    on, tasks = there
    found = look(on, one)
    by_name = {each.id: each for each in tasks}
    able = [each.id for each in tasks if (terms := yields_of(each)) and terms.since <= NOW]
    if place := found.places.get(one.id):
        assert look(on, one).starts == {}
        for each in place.victims:
            terms = yields_of(by_name[each])
            assert terms
            assert terms.since <= place.until - terms.within + 1e-6
            assert asked_at(by_name[each], place.until, 5.0) >= terms.since - 1e-6
        fewest = len(place.victims)
        for size in range(1, fewest):
            for fewer in combinations(able, size):
                assert not look(without(on, tasks, fewer), one).starts, fewer
        assert look(without(on, tasks, place.victims), one).starts
    elif one.id not in found.starts and found.promises.get(one.id) is None:
        # Nobody gives way, and no time is known: then nothing would help.
        assert not look(without(on, tasks, tuple(each for each in able)), one).starts


several = st.lists(wanted, min_size=1, max_size=5, unique_by=lambda each: each.id)


@settings(deadline=None, max_examples=15)
@given(crowded(), several, st.data())
def test_who_asks_gets_the_place_whatever_happens(
    there: tuple[Cluster, tuple[Task, ...]], queue: list[Task], data: st.DataObject
) -> None:
    _play(there, queue, data, looks=20)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(crowded(), several, st.data())
def test_so_in_many_cases(there: tuple[Cluster, tuple[Task, ...]], queue: list[Task], data: st.DataObject) -> None:
    _play(there, queue, data, looks=30)


def _play(there: tuple[Cluster, tuple[Task, ...]], queue: list[Task], data: st.DataObject, *, looks: int) -> None:
    """With a crash at any look (the earlier plan is lost), more tasks that come, and victims that end early.

    Those behind one that is new may be delayed.
    """
    on, running = there[0], {each.id: each for each in there[1]}
    now, before, more = NOW, Plan(), 0
    waiting = {each.id: each for each in queue}
    for _ in range(looks):
        if data.draw(st.integers(0, 5)) == 0:
            before = Plan()
        if data.draw(st.integers(0, 5)) == 0:
            more += 1
            terms = Terms(priority=data.draw(st.sampled_from([0, 5])), preemptible=data.draw(st.booleans()))
            new = wish(f"n{more}", f"{data.draw(st.integers(1, 3))}x")
            waiting[new.id] = replace(new, spec=replace(new.spec, terms=terms), created_at=now)
        running = {name: one for name, one in running.items() if not _is_over(one, now)}
        ordered = order(waiting.values())
        found = plan(at(on, tuple(running.values()), now), ordered, now, POLICIES, before)
        new = next(
            (n for n, each in enumerate(ordered) if not each.kept_place and each.id not in before.promises), None
        )
        lasting = [each for each in ordered[:new] if not each.spec.terms.preemptible]
        assert not broken(at_the_latest(before, LATE), found, lasting, now + LATE)  # since a look may come late
        held = [gpu for each in running.values() for gpu in each.placement.gpu_uuids]  # type: ignore[union-attr]
        for name, start in found.starts.items():
            one = waiting.pop(name)
            if place := one.kept_place:
                assert (start.node, set(start.gpu_uuids)) == (place.node, set(place.gpu_uuids))
            assert not set(start.gpu_uuids).intersection(held)
            held += start.gpu_uuids
            begun = apply(one, Assigned(start), now)
            running[name] = replace(begun, status=Running(start, CID, now))
        for name, place in found.places.items():
            for victim in place.victims:
                assert running[victim].spec.terms.preemptible
            assert not waiting[name].spec.terms.preemptible
            waiting[name] = apply(waiting[name], Preempts(place), now)
        for one in list(waiting.values()):
            if place := one.kept_place:
                assert now <= place.until + 1e-6, "its place was promised for certain"
                for victim in place.victims:
                    _give_way(running, victim, place, now, early=data.draw(st.integers(0, 3)) == 0)
        before, now = found, now + data.draw(st.sampled_from([0.5, 2.0, 5.0, 5.0]))


def at_the_latest(promised: Plan, late: float = SOON) -> Plan:
    """What was promised for certain, a moment later: so much later is seen that a task has ended."""
    told = {
        name: replace(each, start=each.start and each.start + late)
        for name, each in promised.promises.items()
        if each and each.firm
    }
    return replace(promised, promises=told)


def _is_over(one: Task, now: float) -> bool:
    assert isinstance(one.status, Running)
    return one.spec.ends_within is not None and now >= one.status.started_at + one.spec.ends_within


def _give_way(running: dict[str, Task], victim: str, place: KeptPlace, now: float, *, early: bool) -> None:
    """A victim that is asked at its time ends within its grace time, or by itself."""
    one = running.get(victim)
    if one is None:
        return
    assert not isinstance(one.status, Ended)
    if not one.stop and now >= asked_at(one, place.until, 5.0):
        terms = yields_of(one)
        assert terms is None or now >= terms.since - 1e-6
        running[victim] = replace(one, stop="preempt")
    if early or now + 5.0 >= place.until:
        del running[victim]


def test_pending_tasks_of_early_versions_have_no_place() -> None:
    assert Pending().place is None


@pytest.mark.parametrize("size", [3, 12])
def test_many_small_ones_are_chosen_without_trying_all_sets(size: int) -> None:
    small = tuple(lent(f"v{n}", f"node1::{n}", 10 + n) for n in range(16))
    found = look(node(*small, gpus=16), wish("t", f"{size}x"))
    assert len(found.places["t"].victims) == size


# ---------------------------------------------------------------------- in words


def says(on: Cluster, one: Task, *running: Task, before: Plan | None = None) -> str:
    known = {each.id: each for each in running}
    return preempts(on, one, look(on, one, before=before).promises.get(one.id), known)


def test_who_gives_way_is_named_by_id_and_name() -> None:
    there = lent("v0", "node1::0")
    there = replace(there, spec=replace(there.spec, name="train"))
    assert "task v0 (train) of me@here" in says(node(there, gpus=1), wish("n"), there)


def test_explain_says_who_is_preempted_and_when() -> None:
    now, later_on = lent("v", "node1::0"), lent("v", "node1::0", 60, min_run=600)
    assert says(node(now, gpus=1), wish("t"), now) == "preempts task v of me@here"
    assert says(node(later_on, gpus=1), wish("t"), later_on) == (
        "preempts task v of me@here in 9m 0s, when --min-run is over"
    )
    three = tuple(lent(name, f"node1::{gpu}", 60 + gpu) for gpu, name in enumerate("abc"))
    assert says(node(*three, gpus=3), wish("t", "3x"), *three) == (
        "preempts task a of me@here, task b of me@here and task c of me@here"
    )


@pytest.mark.parametrize(
    ("there", "one", "words"),
    [
        ((runs("r", "node1::0"),), wish("t"), ""),
        ((lent("v", "node1::0"),), spare("t"), ""),
        ((lent("v", "node1::0"),), wish("t", needs={"exclude": ("node1",)}), "no preemptible task runs on a node that"),
        ((lent("v", "node1::0"), runs("r", "node1::1")), wish("t", "2x"), "would not start without the preemptible"),
    ],
)
def test_explain_says_why_nobody_is(there: tuple[Task, ...], one: Task, words: str) -> None:
    found = says(node(*there, gpus=2), one, *there)
    assert words in found
    assert bool(words) == bool(found)


def test_explain_says_that_somebody_was_preempted_in_vain() -> None:
    other = lent("w", "node1::0")
    assert says(node(other, gpus=1), replace(wish("t"), victims=("v",)), other) == (
        "preempts nobody else: it has preempted task v"
    )


def test_what_a_preemptible_task_has_to_expect() -> None:
    assert may_be_preempted(lent("v", "node1::0"), NOW) == (
        "it is preemptible: it gives way to any task that needs its place; then it goes back to the queue"
    )
    assert "but not before " in may_be_preempted(lent("v", "node1::0", min_run=600), NOW)
    assert may_be_preempted(spare("p"), NOW) == "it is preemptible: it comes after all others, and preempts nobody"
    assert may_be_preempted(runs("r", "node1::0"), NOW) == ""


def test_a_place_that_is_kept_is_named_with_those_who_give_way() -> None:
    place, known = KeptPlace("node1", (), ("a", "b"), NOW), {each.id: each for each in ALL}
    assert awaited([place], known) == "task a of me@here and task b of me@here give way for it on node1"
    assert awaited([place], {}) == "its place on node1 is kept, and free any moment"
    assert awaited_by([kept(wish("t"), "a")], placement("node1::0,1")) == "task t of me@here"
    assert awaited_by([kept(wish("t"), "a")], placement("node1::1")) == ""


def test_preemptible_tasks_are_in_nobodys_way_but_maintenances() -> None:
    on = node(lent("v", "node1::0"), gpus=1).nodes["node1"]
    for owner, found in (("ann", 0), (None, 1)):
        assert len(in_the_way(Reservation("r1", "node1", (), owner, NOW, NOW + 9), on)) == found
