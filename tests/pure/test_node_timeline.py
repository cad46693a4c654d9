"""The capacity of a node over time. Tested alone, since a later planning pass can hide a wrong answer."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from agentless.model.nodes.cluster import Allocation
from agentless.model.nodes.gpu import GpuSample, GpuTopology
from agentless.model.nodes.node import Breakdown, EngineFacts, HostFacts, NumaNode
from agentless.model.scheduling.reservation import Reservation
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.rules.scheduling.load import Load
from agentless.rules.scheduling.policies import least_loaded
from agentless.rules.scheduling.shape import Amounts, shape_of
from agentless.rules.scheduling.timeline.node import FAR, SOON, NodeTimeline
from tests.pure.build import NOW, cluster, reading, seen, spec, uuid

GIB = 1 << 30
ALL_MEMORY = 128 * GIB
ON_NODE = shape_of(spec())
ON_GPU = ON_NODE._replace(gpus=1)


def timeline(**changes):
    """Two GPUs, 32 cores and 128 GiB."""
    node = cluster(seen()).nodes["node1"]
    return NodeTimeline(replace(node, **changes), 0, NOW)


def amounts(cores=0.0, memory=0, length=60.0):
    return Amounts(cores, memory, length)


def reserved(begin, end, *gpus):
    return Reservation("r1", "node1", gpus, None, NOW + begin, NOW + end)


def held(task, *gpus, **changes):
    return Allocation(task, "ann@a", tuple(uuid("node1", index) for index in gpus), **changes)


def watched(lengths=(), **changes):
    """The same node as it was observed, with these changes."""
    return NodeTimeline(cluster(seen(**changes)).nodes["node1"], 0, NOW, dict(lengths))


def indices(gpus):
    return gpus and [gpu.index for gpu in gpus]


@pytest.mark.parametrize(
    ("shape", "wants"),
    [
        (ON_NODE._replace(gpus=3), amounts()),
        (ON_NODE, amounts(cores=33)),
        (ON_NODE, amounts(memory=ALL_MEMORY + 1)),
    ],
)
def test_what_a_node_does_not_have_it_will_never_have_room_for(shape, wants):
    assert timeline().soonest(shape, wants) == inf


def test_for_all_that_a_node_has_there_is_room_at_once():
    assert timeline().soonest(ON_NODE._replace(gpus=2), amounts(32, ALL_MEMORY)) == NOW


def test_what_is_not_known_of_a_node_is_not_in_the_way():
    node = cluster(seen(host=None)).nodes["node1"]
    assert NodeTimeline(node, 0, NOW).soonest(ON_NODE._replace(gpus=2), amounts(1000, 1000 * GIB)) == NOW


def test_there_is_no_room_before_enough_of_what_is_held_is_given_back():
    busy = timeline()
    busy.put(ON_NODE, amounts(20, 60 * GIB, 100), (), NOW)
    busy.put(ON_NODE, amounts(8, 60 * GIB, 200), (), NOW)
    assert busy.soonest(ON_NODE, amounts(4, 8 * GIB)) == NOW
    assert busy.soonest(ON_NODE, amounts(24)) == NOW + 100
    assert busy.soonest(ON_NODE, amounts(25)) == NOW + 200
    assert busy.soonest(ON_NODE, amounts(memory=68 * GIB)) == NOW + 100
    assert busy.soonest(ON_NODE, amounts(memory=69 * GIB)) == NOW + 200


def test_who_would_run_into_a_reservation_has_no_room_before_its_end():
    node = timeline(reservations=(reserved(100, 300),))
    assert node.soonest(ON_NODE, amounts(length=100)) == NOW
    assert node.soonest(ON_NODE, amounts(length=101)) == NOW + 300


def test_who_would_run_into_the_next_reservation_waits_for_that_as_well():
    node = timeline(reservations=(reserved(10, 20), reserved(50, 60)))
    assert node.soonest(ON_NODE, amounts(length=31)) == NOW + 60
    assert [node.earliest(ON_NODE, amounts(length=length), NOW)[0] for length in (10, 30)] == [NOW, NOW + 20]


def test_what_is_promised_from_a_moment_on_counts_for_who_begins_then():
    """The most is in use when the next of the others begins, be it at once."""
    node = timeline()
    node.put(ON_NODE, amounts(20), (), NOW + 50)
    assert node.fit(ON_NODE, amounts(12), NOW + 50) == []
    assert node.fit(ON_NODE, amounts(13), NOW + 50) is None
    assert node.fit(ON_NODE, amounts(13, length=50), NOW) == []
    assert node.fit(ON_NODE, amounts(13, length=51), NOW) is None


def test_memory_of_those_who_run_at_the_same_time_adds_up():
    node = timeline()
    node.put(ON_NODE, amounts(memory=60 * GIB), (), NOW)
    node.put(ON_NODE, amounts(memory=60 * GIB), (), NOW + 30)
    assert node.fit(ON_NODE, amounts(memory=8 * GIB), NOW) == []
    assert node.fit(ON_NODE, amounts(memory=9 * GIB), NOW) is None
    assert node.fit(ON_NODE, amounts(memory=68 * GIB, length=30), NOW) == []


def test_a_put_that_is_taken_back_was_never_there():
    node = timeline()
    gpus = node.fit(ON_GPU, amounts(4, GIB), NOW)
    load = node.put(ON_GPU._replace(exclusive=True), amounts(4, GIB), gpus, NOW)
    assert (node.free_cores, node.free_memory, node.open_gpus) == (28, 127 * GIB, 1)
    node.take_back(gpus, load)
    assert (node.free_cores, node.free_memory, node.open_gpus) == (32, ALL_MEMORY, 2)
    assert node.fit(ON_NODE, amounts(32, ALL_MEMORY), NOW) == []


def test_the_share_in_use_is_that_of_which_more_is_used():
    node = timeline()
    assert node.in_use == 0
    node.put(ON_NODE, amounts(8, 96 * GIB), (), NOW)
    assert node.in_use == 0.75
    node.put(ON_NODE, amounts(20, 0), (), NOW)
    assert node.in_use == 0.875


def test_a_load_is_as_it_was_taken():
    node = timeline()
    sharing = ON_NODE.sharing
    assert node.put(ON_NODE, amounts(1, 2, 3), (), NOW, firm=True, numa=1) == Load(
        NOW, NOW + 3, 1, 2, exclusive=False, sharing=sharing, numa=1, sure=True, firm=True
    )


def test_a_gpu_opens_when_who_has_it_is_over():
    allocations = (held("limited", 0, since=NOW - 40, limit=100), held("endless", 1))
    assert timeline(allocations=allocations).openings() == [NOW + 60, FAR]


@pytest.mark.parametrize("limit", [40, 30])
def test_who_should_have_ended_is_expected_to_end_soon(limit):
    assert timeline(allocations=(held("t", 0, since=NOW - 40, limit=limit),)).openings() == [NOW, NOW + SOON]


@pytest.mark.parametrize(("since", "limit", "opens"), [(NOW - 40, None, 60), (None, None, 100), (NOW - 40, 90, 50)])
def test_a_length_that_was_learned_is_that_of_a_task_without_a_limit_from_its_begin_on(since, limit, opens):
    node = cluster(seen(gpus=1)).nodes["node1"]
    node = replace(node, allocations=(held("t", 0, since=since, limit=limit),))
    found = NodeTimeline(node, 0, NOW, {"t": 100.0})
    assert (found.openings(), found.unsure) == ([NOW + opens], limit is None)


def test_of_tasks_on_a_node_each_is_found_with_what_it_has():
    found = timeline(allocations=(held("a", cores=1.0), held("b", cores=2.0)))
    found.put(ON_NODE, amounts(4), (), NOW)
    assert found.free_cores == 25
    assert [load and load.cores for load in map(found.load_of, "abc")] == [1, 2, None]


@pytest.mark.parametrize(("wanted", "there"), [(None, True), (1, True), (2, False)])
def test_who_wants_a_numa_node_goes_where_there_is_one_of_that_number(wanted, there):
    assert timeline().admits(ON_NODE._replace(numa=wanted)) is there


def test_a_node_that_was_not_asked_for_is_none_that_will_do():
    assert [timeline().admits(ON_NODE._replace(nodes=(name,))) for name in ("node1", "node2")] == [True, False]


def test_a_gpu_is_near_the_numa_node_that_the_machine_or_the_driver_says():
    sample = GpuSample((reading("node1", 0, pci_bus_id="0000:01:00.0"), reading("node1", 1)))
    host = HostFacts(32, 131072, (NumaNode(3, "0-31", ("0000:01:00.0",)),))
    node = watched(sample=sample, host=host, topology=GpuTopology(numa={0: 5, 1: 6}))
    assert [gpu.numa for gpu in node.gpus] == [3, 6]
    assert [gpu.numa for gpu in watched(sample=sample, host=None).gpus] == [None, None]


def test_on_a_node_that_says_nothing_of_its_machine_there_is_no_numa_node():
    assert watched(host=None).admits(ON_NODE)
    assert not watched(host=None).admits(ON_NODE._replace(numa=0))


def test_gpus_that_will_do_are_of_the_index_the_type_and_the_memory_that_were_asked_for():
    kinds = [("NVIDIA L4", 20, 20), ("NVIDIA H100", 80, 10), ("NVIDIA H100", 80, 80)]
    sample = GpuSample(
        tuple(
            reading("node1", index, name=name, memory_total_mib=total << 10, memory_free_mib=free << 10)
            for index, (name, total, free) in enumerate(kinds)
        )
    )
    node = watched(sample=sample)
    for changes, later, now in [
        ({}, [0, 1, 2], [0, 1, 2]),
        ({"indices": (2, 0)}, [0, 2], [0, 2]),
        ({"gpu_types": ("H100",)}, [1, 2], [1, 2]),
        ({"gpu_memory": 20 * GIB}, [0, 1, 2], [0, 2]),
        ({"gpu_memory": 80 * GIB}, [1, 2], [2]),
        ({"gpu_memory": 80 * GIB + 1}, [], []),
    ]:
        shape = ON_GPU._replace(**changes)
        assert [indices(node.suited(shape, later=each)) for each in (True, False)] == [later, now]
    assert indices(node.fit(ON_GPU._replace(gpus=2, gpu_memory=80 * GIB), amounts(), NOW + 1)) == [1, 2]
    assert node.fit(ON_GPU._replace(gpus=2, gpu_memory=80 * GIB), amounts(), NOW) is None
    promised = node.gpus[1:]
    assert indices(node.fit(ON_GPU._replace(gpus=2, gpu_memory=80 * GIB), amounts(), NOW, promised)) == [1, 2]
    assert node.open_of(ALONE) == (1, 2)
    node.put(ON_GPU, amounts(), node.gpus[1:2], NOW)
    assert node.open_of(ALONE) == (1, 1)


def test_among_gpus_that_were_promised_only_those_are_given():
    node = timeline()
    assert indices(node.fit(ON_GPU, amounts(), NOW, node.gpus[1:])) == [1]
    assert indices(node.these([uuid("node1", 1), uuid("node1", 7)])) == [1]
    assert node.earliest(ON_GPU, amounts(), NOW, node.gpus[1:]) == (NOW, node.gpus[1:])


def test_nothing_fits_on_a_node_that_is_closed():
    assert timeline(state="degraded", reason="it hangs").fit(ON_NODE, amounts(), NOW) is None
    assert timeline(state="degraded", reason="it hangs").closed == "it hangs"
    assert timeline(reason="of no matter").closed == ""


def test_the_earliest_time_is_the_first_end_after_which_it_fits():
    node = timeline()
    node.put(ON_GPU, amounts(length=50), node.gpus[:1], NOW)
    node.put(ON_GPU, amounts(length=20), node.gpus[1:], NOW)
    two = ON_NODE._replace(gpus=2)
    assert [node.soonest(shape, amounts()) for shape in (ON_GPU, two)] == [NOW + 20, NOW + 50]
    assert node.earliest(ON_GPU, amounts(), NOW) == (NOW + 20, node.gpus[1:])
    assert node.earliest(ON_GPU, amounts(), NOW + 20) == (NOW + 20, node.gpus[1:])
    assert node.earliest(two, amounts(), NOW) == (NOW + 50, node.gpus)


def test_who_wants_cores_waits_for_the_end_of_one_who_has_no_gpu():
    node = timeline()
    node.put(ON_NODE, amounts(20, length=20), (), NOW)
    assert node.earliest(ON_NODE, amounts(20), NOW) == (NOW + 20, [])


def test_after_what_never_ends_there_is_no_earliest_time():
    node = timeline()
    node.put(ON_GPU, amounts(length=inf), node.gpus, NOW)
    assert node.earliest(ON_GPU, amounts(), NOW) is None


def test_a_learned_length_is_endless_as_long_as_somebody_was_promised_a_certain_time():
    node, short = timeline(), Amounts(0, 0, 30, sure=False)
    node.put(ON_NODE, short, (), NOW)
    assert node.unsure
    firm = node.put(ON_GPU, amounts(), node.gpus[:1], NOW + 40, firm=True)
    assert node.put(ON_NODE, amounts(length=30), (), NOW).end == NOW + 30
    endless = node.put(ON_NODE, short, (), NOW)
    assert (endless.end, endless.sure) == (inf, True)
    assert node.fit(ON_GPU, short, NOW, node.gpus[:1]) is None
    node.take_back(node.gpus[:1], firm)
    assert node.fit(ON_GPU, short, NOW, node.gpus[:1]) == node.gpus[:1]


def test_what_is_taken_from_later_on_is_free_until_then():
    node = timeline()
    node.put(ON_NODE, amounts(20, 60 * GIB), (), NOW + 1)
    assert (node.free_cores, node.free_memory) == (32, ALL_MEMORY)
    assert node.soonest(ON_NODE, amounts(32, ALL_MEMORY)) == NOW


def test_who_is_alone_is_alone_while_he_is_there_and_with_none_who_comes_meanwhile():
    alone, node = ON_NODE._replace(exclusive=True), timeline()
    node.put(alone, amounts(length=10), (), NOW)
    for wants in (amounts(), amounts(1), amounts(0, GIB)):
        assert node.fit(ON_NODE, wants, NOW) is None
        assert node.fit(ON_NODE, wants, NOW + 10) == []
    node.put(ON_NODE, amounts(length=10), (), NOW + 20)
    assert node.fit(alone, amounts(length=10), NOW + 10) == []
    assert node.fit(alone, amounts(length=11), NOW + 10) is None
    assert node.fit(alone, amounts(), NOW + 30) == []
    assert node.fit(ON_NODE, amounts(length=30), NOW) is None


def test_who_wants_to_be_alone_is_not_with_one_who_does_not_mind():
    node = timeline()
    node.put(ON_NODE, amounts(length=10), (), NOW)
    assert node.fit(ON_NODE._replace(exclusive=True), amounts(), NOW) is None
    assert node.fit(ON_NODE._replace(exclusive=True), amounts(), NOW + 10) == []


def test_one_who_has_ended_when_the_next_begins_is_not_there_with_him():
    node = timeline()
    node.put(ON_NODE, amounts(20, 64 * GIB, length=50), (), NOW)
    node.put(ON_NODE, amounts(20, 64 * GIB), (), NOW + 50)
    assert node.fit(ON_NODE, amounts(12, 64 * GIB, length=100), NOW) == []


def test_only_memory_or_only_cores_may_be_wanted():
    node = timeline()
    node.put(ON_NODE, amounts(30, 120 * GIB), (), NOW)
    assert node.fit(ON_NODE, amounts(3), NOW) is None
    assert node.fit(ON_NODE, amounts(0, 9 * GIB), NOW) is None


def test_a_reserved_gpu_is_not_given_and_the_others_are():
    node = timeline(reservations=(reserved(0, 50, 0), reserved(100, 200, 1)))
    assert indices(node.fit(ON_GPU, amounts(length=100), NOW)) == [1]
    assert node.fit(ON_GPU, amounts(length=101), NOW) is None
    assert node.fit(ON_NODE._replace(gpus=2), amounts(length=1), NOW) is None
    assert indices(node.fit(ON_NODE._replace(gpus=2), amounts(length=50), NOW + 50)) == [0, 1]


@pytest.mark.parametrize(
    ("trial", "shape", "fits"),
    [
        (Breakdown("it hangs", "gpus", bare=False, again=NOW, pause=5), ON_GPU, True),
        (Breakdown("it hangs", "gpus", bare=False, again=NOW, pause=5), ON_NODE, False),
        (Breakdown("it hangs", "start", bare=False, again=NOW, pause=5), ON_NODE, True),
        (Breakdown("it hangs", "start", bare=True, again=NOW, pause=5), ON_NODE, False),
    ],
)
def test_a_node_that_is_tried_again_takes_only_who_shows_whether_it_works(trial, shape, fits):
    node = timeline(state="degraded", reason="it hangs", trial=trial)
    assert (node.fit(shape, amounts(), NOW) is not None) is fits
    assert node.soonest(shape, amounts()) == (NOW if fits else inf)


def test_only_one_tries_a_node_that_was_broken():
    trial = Breakdown("it hangs", "gpus", bare=False, again=NOW, pause=5)
    node = timeline(state="degraded", reason="it hangs", trial=trial)
    node.start(ON_GPU, amounts(), node.gpus[:1])
    assert (node.closed, node.fit(ON_GPU, amounts(), NOW)) == ("it hangs", None)


def test_a_start_takes_what_it_needs_from_now_on_and_says_where_it_is():
    node = timeline(last_start=NOW - 10)
    placed, load = node.start(ON_GPU, amounts(4, GIB), node.gpus[1:])
    assert (placed.node, placed.gpus, placed.gpu_uuids) == ("node1", (1,), (uuid("node1", 1),))
    assert (placed.cpus, placed.numa, placed.gpu_total) == (None, None, 0)
    assert (load.begin, load.end, node.last_start, node.open_gpus) == (NOW, NOW + 60, NOW, 1)
    assert not node.closed


@pytest.mark.parametrize(("limit", "total"), [(1, 0), (2, 20 << 30)])
def test_who_shares_is_told_of_the_least_memory_of_its_gpus(limit, total):
    sample = GpuSample(tuple(reading("node1", n, memory_total_mib=mib << 10) for n, mib in enumerate((40, 20))))
    node = watched(sample=sample)
    shape = ON_NODE._replace(gpus=2, sharing=Sharing(limit, GIB if limit > 1 else 0))
    assert node.start(shape, amounts(), node.gpus)[0].gpu_total == total


NEAR = GpuTopology(numa={0: 0, 1: 0})


@pytest.mark.parametrize(("begin", "numa"), [(NOW, None), (NOW + 1, 0)])
def test_who_starts_is_pinned_where_those_who_are_there_leave_cpus(begin, numa):
    node = watched(topology=NEAR)
    node.put(ON_NODE, amounts(13), (), begin, numa=0)
    placed, load = node.start(ON_GPU, amounts(4), node.gpus[:1])
    assert (placed.numa, placed.cpus, load.numa) == (numa, None if numa is None else "0-15", numa)


@pytest.mark.parametrize(
    ("engine", "bare", "numa"),
    [
        (EngineFacts("28", lacks=frozenset({"cpuset"})), False, None),
        (EngineFacts("28", lacks=frozenset({"cpuset"})), True, 0),
        (EngineFacts("28", lacks=frozenset({"freezer"})), False, 0),
        (None, False, 0),
    ],
)
def test_nothing_is_pinned_by_an_engine_that_cannot(engine, bare, numa):
    node = cluster(seen(topology=NEAR)).nodes["node1"]
    node = NodeTimeline(replace(node, observation=replace(node.observation, engine=engine)), 0, NOW)
    assert node.start(ON_GPU._replace(bare=bare), amounts(), node.gpus[:1])[0].numa == numa


def test_where_nothing_is_known_of_the_machine_nothing_is_pinned_and_no_share_is_in_use():
    node = watched(host=None, topology=NEAR)
    assert node.start(ON_GPU, amounts(4), node.gpus[:1])[0].numa is None
    assert node.in_use == 0
    halves = watched(host=HostFacts(32, None)), watched(host=HostFacts(None, 131072))
    for each in halves:
        each.put(ON_NODE, amounts(8, 64 * GIB), (), NOW)
    assert [each.in_use for each in halves] == [0.25, 0.5]


def test_gpus_that_nobody_can_have_are_no_places():
    sample = GpuSample((reading("node1", 0), reading("node1", 1, memory_used_mib=None)))
    assert indices(watched(sample=sample).gpus) == [0]


def test_who_is_least_loaded_counts_gpus_that_are_taken_what_is_set_aside_and_how_busy_the_gpus_are():
    sample = GpuSample((reading("node1", 0, utilization_pct=100), reading("node1", 1, utilization_pct=20)))
    node = watched(sample=sample)
    node.put(ON_GPU, amounts(8), node.gpus[:1], NOW)
    assert least_loaded.cost(node, 0) == (pytest.approx(0.5 + 0.25 + 0.6),)
    one = watched(sample=GpuSample(sample.gpus[:1]))
    assert least_loaded.cost(one, 0) == (1,)
    assert least_loaded.cost(watched(gpus=0), 0) == (0,)
