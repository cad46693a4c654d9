"""The search for a place. By itself, since the queue hides what it says where another look mends it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from agentless.model.nodes.gpu import GpuSample
from agentless.model.scheduling.needs import parse_target
from agentless.model.scheduling.sharing import ALONE
from agentless.rules.scheduling.policies import best_fit, first_fit, pack
from agentless.rules.scheduling.search import Index, Search, _worth
from agentless.rules.scheduling.shape import Amounts, shape_of
from agentless.rules.scheduling.timeline.gpu import FAR
from agentless.rules.scheduling.timeline.node import NodeTimeline
from tests.pure.build import NOW, cluster, reading, seen, spec

GIB = 1 << 30
A100, H100, L4 = "NVIDIA A100", "NVIDIA H100", "NVIDIA L4"


def amounts(length=60.0, cores=0.0, memory=0):
    return Amounts(cores, memory, length)


def shape(target="1x", **needs):
    return shape_of(spec(needs=replace(parse_target(target), **needs)))


def timelines(*nodes, **changes):
    """Nodes called n0, n1, ...: each a number of L4s, or the names of its GPUs."""
    found = {}
    for order, gpus in enumerate(nodes):
        name, kinds = f"n{order}", [L4] * gpus if isinstance(gpus, int) else gpus
        readings = [reading(name, index, name=kind) for index, kind in enumerate(kinds)]
        found[name] = seen(name, sample=GpuSample(tuple(readings)), **changes)
    on = cluster(found)
    return [NodeTimeline(node, order, NOW) for order, node in enumerate(on.nodes.values())]


def index_of(found, cost=pack.cost):
    return Index(found, cost, ALONE)


def take(index, node, gpus, length=inf, begin=0.0):
    """Put a task on these GPUs of a node."""
    load = node.put(shape(), amounts(length), [node.gpus[gpu] for gpu in gpus], NOW + begin)
    index.changed(node)
    return load


def now(index, wanted, *wants):
    """Which GPUs it gets now."""
    return place(Search(wanted, index).now(wants[0] if wants else amounts()))


def place(found):
    return found and (found[0].name, [gpu.index for gpu in found[1]])


def later(index, wanted, *since, **wants):
    """In how many seconds it gets which GPUs."""
    found = Search(wanted, index).later(amounts(**wants), *since)
    return found and (found[0] - NOW, found[1].name, [gpu.index for gpu in found[2]])


# ---------------------------------------------------------------------- now


def test_the_cheapest_of_all_nodes_is_taken():
    index = index_of(timelines(3, 1, 2))
    assert now(index, shape()) == ("n1", [0])
    assert now(index, shape("2x")) == ("n2", [0, 1])


def test_a_node_that_something_was_put_into_has_another_cost():
    n0, _ = found = timelines(3, 2)
    index = index_of(found)
    take(index, n0, [0, 1])
    assert now(index, shape()) == ("n0", [2])
    take(index, n0, [2])
    assert now(index, shape()) == ("n1", [0])


def test_as_many_gpus_as_are_open_are_enough_and_one_less_is_not():
    index = index_of(timelines(2))
    assert now(index, shape("2x")) == ("n0", [0, 1])
    take(index, index.names["n0"], [1])
    assert now(index, shape("2x")) is None


def test_all_cores_and_all_memory_of_a_node_may_be_taken_and_no_more():
    index = index_of(timelines(1))
    assert now(index, shape(), amounts(cores=32, memory=128 * GIB)) == ("n0", [0])
    assert now(index, shape(), amounts(cores=32.5)) is None
    assert now(index, shape(), amounts(memory=128 * GIB + 1)) is None


def test_a_task_without_gpus_gets_a_node_and_no_seats():
    assert now(index_of(timelines(1)), shape("n0")) == ("n0", [])


def test_where_the_best_gpus_are_not_open_for_long_enough_the_next_best_node_is_compared():
    """n0 has the fewest open, and its H100 is promised soon: what it would give is worse than what the others have."""
    n0, *_ = found = timelines([H100, A100], [H100] * 3, [H100] * 4)
    index = index_of(found)
    take(index, n0, [0], begin=30)
    wanted = shape(gpu_types=("H100", "A100"))
    assert now(index, wanted) == ("n1", [0])
    assert now(index, wanted, amounts(30)) == ("n0", [0])


def test_several_gpus_are_as_good_as_the_worst_of_them():
    """On n0 one of the two H100 is promised soon."""
    n0, _ = found = timelines([H100, H100, A100], [H100] * 4)
    index = index_of(found)
    take(index, n0, [0], begin=30)
    assert now(index, shape("2x", gpu_types=("H100", "A100"))) == ("n1", [0, 1])


def test_of_several_that_are_worse_than_they_promise_the_best_is_taken():
    n0, n1 = found = timelines([H100, A100], [H100, A100, L4])
    index = index_of(found)
    take(index, n0, [0], begin=30)
    take(index, n1, [0], begin=30)
    assert now(index, shape(gpu_types=("H100", "A100"))) == ("n0", [1])
    assert now(index, shape(gpu_types=("H100", "L4", "A100"))) == ("n1", [2])


def test_what_is_worse_than_it_promised_is_taken_all_the_same_where_nothing_else_is():
    n0, *_ = found = timelines([H100, A100])
    index = index_of(found)
    take(index, n0, [0], begin=30)
    assert now(index, shape(gpu_types=("H100", "A100"))) == ("n0", [1])


def test_of_equally_cheap_nodes_the_first_of_the_inventory_is_taken():
    assert now(index_of(timelines(2, 2), first_fit.cost), shape()) == ("n0", [0])
    assert now(index_of(timelines(2, 2)), shape()) == ("n0", [0])


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(("n1",), ("n1", [0])), (("n0", "n1"), ("n0", [0])), (("n2",), None), (("n3",), None), (("n9",), None)],
)
def test_of_the_nodes_that_are_named_the_cheapest_that_will_do_is_taken(nodes, expected):
    """n2 has another GPU, and n3 is not online."""
    found = timelines(1, 2, [H100], 1)
    found[3].closed = "it is down"
    wanted = shape(nodes=nodes, gpu_types=("L4",))
    assert now(index_of(found), wanted) == expected
    assert (later(index_of(found), wanted) is None) == (expected is None)


def test_a_node_without_the_label_is_not_taken_although_it_is_named():
    wanted = shape(nodes=("n0",), on={"rack": "a"})
    assert now(index_of(timelines(1)), wanted) is None
    assert later(index_of(timelines(1)), wanted) is None


def test_a_node_that_is_closed_or_left_out_is_passed_over():
    n0, *_ = found = timelines(1, 2, 3)
    n0.closed = "it is down"
    index = index_of(found)
    assert now(index, shape(exclude=("n1",))) == ("n2", [0])
    assert later(index, shape(exclude=("n1",))) == (0, "n2", [0])
    found[2].closed = "it is down"
    assert later(index, shape()) == (0, "n1", [0])


def test_the_smallest_gpus_that_will_do_cost_the_least_with_best_fit():
    def totals(node, *mib):
        return seen(node, sample=GpuSample(tuple(reading(node, i, memory_total_mib=m) for i, m in enumerate(mib))))

    on = cluster({"n0": totals("n0", 40960), "n1": totals("n1", 81920, 24576), "n2": totals("n2", 30720)})
    index = index_of([NodeTimeline(node, order, NOW) for order, node in enumerate(on.nodes.values())], best_fit.cost)
    assert now(index, shape("1x:20G")) == ("n1", [1])
    assert now(index, shape("1x:28G")) == ("n2", [0])


# ---------------------------------------------------------------------- what did not fit


def test_what_did_not_fit_is_not_tried_again_before_something_was_given_back():
    (n0,) = found = timelines(1)
    index = index_of(found)
    load = take(index, n0, [0])
    search = Search(shape(), index)
    assert search.now(amounts(60)) is None
    n0.take_back([n0.gpus[0]], load)
    index.changed(n0)
    assert search.now(amounts(60)) is None
    assert search.now(amounts(61, cores=1)) is None
    assert place(search.now(amounts(59))) == ("n0", [0])
    search.forget()
    assert place(search.now(amounts(60))) == ("n0", [0])


def test_all_that_did_not_fit_is_remembered():
    """The one wants more time and the other one more cores."""
    (n0,) = found = timelines(1)
    index = index_of(found)
    load = take(index, n0, [0])
    search = Search(shape(), index)
    long, wide = amounts(60, cores=1), amounts(50, cores=2)
    assert (search.now(long), search.now(wide)) == (None, None)
    n0.take_back([n0.gpus[0]], load)
    index.changed(n0)
    assert (search.now(long), search.now(wide)) == (None, None)
    assert place(search.now(amounts(50, cores=1))) == ("n0", [0])


def test_where_something_was_given_back_it_is_tried_again():
    n0, n1 = found = timelines(1, 1)
    index = index_of(found)
    load = take(index, n0, [0])
    take(index, n1, [0])
    search = Search(shape(), index)
    assert search.now(amounts()) is None
    assert search.now(amounts(), n0) is None
    n0.take_back([n0.gpus[0]], load)
    index.changed(n0)
    assert search.now(amounts(), n1) is None
    assert place(search.now(amounts(), n0)) == ("n0", [0])


# ---------------------------------------------------------------------- later


def test_the_place_that_is_free_first_is_found():
    n0, n1, n2 = found = timelines(2, 2, 2)
    index = index_of(found)
    for node, ends in ((n0, (50, 20)), (n1, (30, 40)), (n2, (inf, inf))):
        for gpu, end in enumerate(ends):
            take(index, node, [gpu], end)
    assert later(index, shape()) == (20, "n0", [1])
    assert later(index, shape("2x")) == (40, "n1", [0, 1])
    assert later(index, shape("2x"), NOW + 45) == (45, "n1", [0, 1])
    assert later(index, shape("3x")) is None


def test_the_order_of_those_who_are_asked_for_follows_what_is_put_in():
    """They are sorted by the number of GPUs that is asked for, from none to all."""
    n0, n1 = found = timelines(2, 2)
    index = index_of(found)
    (kinds,) = index.nodes
    take(index, n1, [0], 10)
    assert [[node.name for _, node in index.soon(kinds, gpus)] for gpus in (0, 1, 2)] == [["n0", "n1"]] * 3
    take(index, n0, [0, 1], 20)
    assert [[node.name for _, node in index.soon(kinds, gpus)] for gpus in (0, 1, 2)] == [["n1", "n0"]] * 3


def test_of_places_at_the_same_time_the_one_with_the_most_open_now_is_found():
    n0, n1, n2 = found = timelines(3, 3, 3)
    index = index_of(found)
    take(index, n0, [0, 1], 50)
    take(index, n1, [2], 50)
    take(index, n2, [0, 1, 2], 50)
    assert later(index, shape("3x")) == (50, "n1", [0, 1, 2])
    assert later(index, shape("3x", nodes=("n0", "n1", "n2"))) == (50, "n1", [0, 1, 2])
    assert later(index, shape("n0", nodes=("n0", "n1", "n2"))) == (0, "n1", [])


def test_a_place_that_is_free_only_for_a_moment_is_none():
    """n0 opens first, and is promised soon after; n1 opens next."""
    n0, n1, n2 = found = timelines(1, 1, 1)
    index = index_of(found)
    take(index, n0, [0], 10)
    take(index, n0, [0], 10, begin=40)
    take(index, n1, [0], 45)
    take(index, n2, [0], 48)
    assert later(index, shape(), length=30) == (10, "n0", [0])
    assert later(index, shape(), length=31) == (45, "n1", [0])
    assert later(index, shape(), NOW + 1, length=31) == (45, "n1", [0])


def test_a_place_that_is_promised_for_ever_before_it_is_free_for_long_enough_is_none():
    (n0,) = found = timelines(1)
    index = index_of(found)
    take(index, n0, [0], 10)
    take(index, n0, [0], begin=40)
    assert later(index, shape(), length=30) == (10, "n0", [0])
    assert later(index, shape(), length=31) is None


def test_of_places_that_turn_out_to_come_at_the_same_time_the_one_with_the_most_open_now_is_found():
    """n0 seems to be first, and is promised in between."""
    n0, n1 = found = timelines(2, 2)
    index = index_of(found)
    take(index, n0, [0], 10)
    take(index, n0, [1], 10)
    take(index, n0, [0], 20, begin=30)
    take(index, n1, [1], 50)
    assert later(index, shape("2x"), length=100) == (50, "n1", [0, 1])


def test_from_a_time_on_the_place_that_opens_first_is_found():
    n0, n1 = found = timelines(4, 4)
    index = index_of(found)
    take(index, n0, [0, 1, 2], 10)
    take(index, n1, [0], 50)
    assert later(index, shape("4x"), NOW + 100) == (100, "n0", [0, 1, 2, 3])


def test_what_ends_at_a_time_that_nobody_knows_is_found_and_what_never_ends_is_not():
    (n0,) = found = timelines(1)
    index = index_of(found)
    load = take(index, n0, [0], FAR - NOW)
    assert later(index, shape()) == (FAR - NOW, "n0", [0])
    n0.take_back([n0.gpus[0]], load)
    take(index, n0, [0])
    assert later(index, shape()) is None


# ---------------------------------------------------------------------- what GPUs are worth


@pytest.mark.parametrize(
    ("target", "types", "kinds", "worth"),
    [
        ("1x", (), [("a", 16, 2)], (0, 16)),
        ("2x", (), [("a", 16, 2)], (0, 32)),
        ("3x", (), [("a", 16, 2)], None),
        ("2x", (), [("a", 24, 2), ("a", 16, 2)], (0, 32)),
        ("2x", (), [("a", 24, 2), ("a", 16, 1)], (0, 48)),
        ("2x", (), [("a", 24, 1), ("a", 16, 1)], (0, 40)),
        ("3x", (), [("a", 24, 9), ("a", 16, 1), ("a", 18, 1)], (0, 72)),
        ("1x", ("b", "a"), [("a", 16, 1), ("b", 24, 1)], (0, 24)),
        ("2x", ("b", "a"), [("a", 16, 1), ("b", 24, 1)], (1, 40)),
        ("2x", ("b", "a"), [("a", 16, 2), ("b", 24, 1)], (1, 32)),
        ("2x", ("b", "a"), [("a", 16, 2), ("b", 24, 2)], (0, 48)),
        ("2x", ("b", "a"), [("a", 16, 2), ("b", 24, 1), ("b", 16, 1)], (0, 40)),
        ("1x", ("b",), [("a", 16, 1)], None),
        ("0x", (), [], (0, 0)),
    ],
)
def test_gpus_are_worth_what_would_be_taken_of_them(target, types, kinds, worth):
    wanted = shape()._replace(gpus=int(target[0]), gpu_types=types)
    assert _worth([(name, total, False, count) for name, total, count in kinds], wanted) == worth


@pytest.mark.parametrize(("memory", "worth"), [(16, (0, 0)), (15, (0, 2)), (17, (0, 14)), (25, None)])
def test_memory_that_was_not_asked_for_is_to_spare(memory, worth):
    assert _worth([("a", 16, False, 2), ("b", 24, False, 2)], shape("2x")._replace(gpu_memory=memory)) == worth
