"""How many of a batch run at a time, and what that means for those who wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Task
from agentless.rules.scheduling.batches import Turns, is_held_back, within_limits
from agentless.rules.scheduling.plan import Plan, Promise, plan
from agentless.rules.scheduling.stay import Stay
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.scheduling.timeline.node import NodeTimeline
from tests.pure.build import NOW, cluster, seen, task, uuid
from tests.pure.test_plan import POLICIES, later, places, promises, runs, wish

HOUR = 3600.0


def of(one: Task, most: int = 1, batch: str = "b") -> Task:
    """One of a batch of which at most so many run at a time."""
    return replace(one, batch=batch, spec=replace(one.spec, terms=replace(one.spec.terms, max_parallel=most)))


def node(*tasks: Task, gpus: int = 2) -> Cluster:
    return cluster(seen(gpus=gpus), tasks)


def look(on: Cluster, *queue: Task, placed: tuple[Task, ...] = (), before: Plan | None = None) -> Plan:
    return plan(on, queue, on.at, POLICIES, before, placed=placed)


A = [of(wish(name, limit=HOUR)) for name in ("a1", "a2", "a3")]


def test_those_that_are_held_back_are_promised_the_end_of_one_of_their_batch() -> None:
    found = look(node(), *A)
    assert (places(found), promises(found)) == ({"a1": "node1::0"}, {"a2": ("node1", HOUR), "a3": ("node1", 2 * HOUR)})


def test_a_promise_behind_them_is_kept_as_they_start_one_after_the_other() -> None:
    """Each ends at its limit."""
    large, found = wish("large", "2x", HOUR), Plan()
    queue = [*A, large]
    for hour, name in enumerate(["a1", "a2", "a3", "large"]):
        found = look(later(node(), (), NOW + hour * HOUR), *queue, before=found)
        assert list(found.starts) == [name]
        assert promises(found).get("large", ("node1", 3 * HOUR)) == ("node1", 3 * HOUR)
        queue = [one for one in queue if one.id != name]


def test_one_that_is_held_back_keeps_nobody_from_what_it_may_not_use_yet() -> None:
    """It is to have the GPU of the one before it, which has no time limit."""
    first = of(runs("a1", "node1::0"))
    found = look(node(first), of(wish("a2")), wish("other"), placed=(first,))
    assert (places(found), promises(found)) == ({"other": "node1::1"}, {"a2": ("node1", None)})


def test_what_one_was_promised_that_is_held_back_for_longer_now_is_kept_from_nobody() -> None:
    """Its promise was for the end of `other`, and the one of its batch has more time by now."""
    first, other = of(runs("a1", "node2::0", 0, 100)), runs("u", "node1::0", 0, 50)
    both = cluster({name: seen(name, gpus=1) for name in ("node1", "node2")}, (first, other))
    before = Plan({}, {"new": None, "a2": Promise("node1", NOW + 50, (uuid("node1", 0),))})
    queue = [wish("new", "node1::0", 60), of(wish("a2", "node1::0", 10))]
    assert promises(look(both, *queue, placed=(first,), before=before))["new"] == ("node1", 50)


def test_those_that_have_a_place_count_whatever_their_state() -> None:
    placed = [of(task(f"t{n}", f"node1::{n}", state), 3) for n, state in enumerate(["assigning", "lost", "ended"])]
    found = look(node(*placed, gpus=5), *[of(wish(name), 3) for name in "ab"], placed=tuple(placed))
    assert list(found.starts) == ["a"]


def test_batches_do_not_count_for_each_other() -> None:
    queue = [of(wish(name, limit=HOUR), 1, batch) for name, batch in (("a", "b"), ("b", "c"), ("c", "b"), ("d", "c"))]
    assert list(look(node(gpus=4), *queue).starts) == ["a", "b"]


def test_the_tasks_of_a_batch_may_want_different_places() -> None:
    queue = [of(wish("a", "node1::0", HOUR)), of(wish("b", "node1::1", HOUR)), of(wish("c", "node2", HOUR))]
    on = cluster({"node1": seen("node1"), "node2": seen("node2")})
    assert promises(look(on, *queue)) == {"b": ("node1", HOUR), "c": ("node2", 2 * HOUR)}


def test_one_whose_node_has_left_the_inventory_holds_the_others_back_for_nobody_knows_how_long() -> None:
    gone = of(runs("a1", "node9::0", 0, HOUR))
    assert promises(look(node(), of(wish("a2")), placed=(gone,))) == {"a2": ("node1", None)}


@pytest.mark.parametrize(("most", "held"), [(1, True), (2, False), (None, False)])
def test_whether_one_is_held_back_now(most: int | None, held: bool) -> None:
    placed = of(runs("a1", "node1::0"), 2)
    waiting = wish("a2") if most is None else of(wish("a2"), most)
    assert is_held_back(waiting, [placed, waiting, of(wish("a3"), 2)]) is held


@pytest.mark.parametrize("state", ["ended", "pending"])
def test_one_without_a_place_holds_nobody_back(state: str) -> None:
    assert not is_held_back(of(wish("a2")), [of(task("a1", state=state))])


def test_one_of_another_batch_holds_nobody_back() -> None:
    assert not is_held_back(of(wish("a2")), [of(runs("a1", "node1::0"), batch="other")])


def test_of_several_the_end_counts_after_which_there_are_fewer_than_may_be() -> None:
    turns, waiting = Turns((), (), {}), of(wish("a"), 2)
    for end in (20, 10):
        assert turns.before(waiting) is None
        turns.add(waiting, Stay(end))
    turns.add(waiting, Stay(30))
    assert turns.before(waiting) == Stay(20)
    assert turns.before(of(wish("a"), 3)) == Stay(10)
    assert turns.before(of(wish("a"), 4)) is None
    assert turns.before(of(wish("a"), 1, "other")) is None
    assert turns.before(replace(wish("a"), batch="b")) is None


def test_those_that_have_a_place_have_it_up_to_their_end_on_their_gpus() -> None:
    sure, unsure, ended = of(runs("a1", "node1::1", 0, HOUR)), of(runs("a2", "node1::0")), of(task("a3", state="ended"))
    free = replace(runs("a4", "node1::0"), batch="b")
    timeline = NodeTimeline(node(sure, unsure).nodes["node1"], 0, NOW, {"a2": 2 * HOUR})
    turns = Turns((), [sure, unsure, ended, free], {"node1": timeline})
    assert turns.before(of(wish("a"), 1)) == Stay(NOW + 2 * HOUR, timeline, [timeline.gpus[0]], sure=False)
    assert turns.before(of(wish("a"), 2)) == Stay(NOW + HOUR, timeline, [timeline.gpus[1]])
    assert turns.before(of(wish("a"), 3)) is None


def test_one_that_its_node_does_not_know_of_has_its_place_for_nobody_knows_how_long() -> None:
    turns = Turns((), [of(runs("a1", "node1::0", 0, HOUR))], {"node1": NodeTimeline(node().nodes["node1"], 0, NOW)})
    assert turns.before(of(wish("a2"))) == Stay(FAR)


lengths = st.integers(1, 100).map(float)


@settings(deadline=None)
@given(st.lists(lengths, max_size=3), st.lists(lengths, max_size=8), st.integers(1, 3), st.integers(1, 4))
def test_never_more_than_so_many_at_a_time_and_as_many_as_there_is_room_for(
    there: list[float], waiting: list[float], most: int, gpus: int
) -> None:
    placed = tuple(of(runs(f"t{n}", f"node1::{n}", 0, limit), most) for n, limit in enumerate(there[:gpus]))
    queue = [of(wish(f"q{n}", limit=limit), most) for n, limit in enumerate(waiting)]
    found = look(node(*placed, gpus=gpus), *queue, placed=placed)
    assert len(found.starts) == max(0, min(len(waiting), most - len(placed), gpus - len(placed)))
    starts = {one.id: NOW for one in queue if one.id in found.starts}
    starts |= {name: promise.start for name, promise in found.promises.items() if promise and promise.start}
    assert starts.keys() == {one.id for one in queue}
    spans = [(NOW, NOW + limit) for limit in there[:gpus]]
    spans += [(starts[one.id], starts[one.id] + (one.spec.terms.time_limit or 0)) for one in queue]
    at_once = [sum(begin <= moment < end for begin, end in spans) for moment in starts.values()]
    assert max(at_once, default=0) <= max(most, len(placed))


def test_no_more_go_to_a_cluster_than_the_limit_leaves_beside_those_that_run() -> None:
    """A batch of which none runs goes there as a whole, if all of it goes there."""
    tasks = [*(of(wish(name), 2) for name in ("a1", "a2", "a3")), wish("free"), of(wish("c1"), 1, "c")]
    first, elsewhere = of(runs("a0", "node1::0"), 2), of(wish("a4", "node1::1"), 2)
    assert [each.id for each in within_limits(tasks, tasks)] == ["a1", "a2", "a3", "free", "c1"]
    assert [each.id for each in within_limits(tasks, [first, *tasks])] == ["a1", "free", "c1"]
    assert [each.id for each in within_limits(tasks, [elsewhere, *tasks])] == ["a1", "a2", "free", "c1"]
