"""The room on a node, now and later. By itself, since the queue hides what it says where another look mends it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from agentless.model.reservation import Reservation
from agentless.rules.load import Load
from agentless.rules.room import Room
from agentless.rules.shape import Amounts, shape_of
from tests.pure.build import NOW, cluster, seen, spec

GIB = 1 << 30
ALL_MEMORY = 128 * GIB
ON_NODE = shape_of(spec())
ON_GPU = replace(ON_NODE, gpus=1)


def room(**changes):
    """Two GPUs, 32 cores and 128 GiB."""
    node = cluster(seen()).nodes["node1"]
    return Room(replace(node, **changes), 0, NOW)


def amounts(cores=0.0, memory=0, length=60.0):
    return Amounts(cores, memory, length)


def reserved(begin, end):
    return Reservation("r1", "node1", (), None, NOW + begin, NOW + end)


@pytest.mark.parametrize(
    ("shape", "wants"),
    [
        (replace(ON_NODE, gpus=3), amounts()),
        (ON_NODE, amounts(cores=33)),
        (ON_NODE, amounts(memory=ALL_MEMORY + 1)),
    ],
)
def test_what_a_node_does_not_have_it_will_never_have_room_for(shape, wants):
    assert room().soonest(shape, wants) == inf


def test_for_all_that_a_node_has_there_is_room_at_once():
    assert room().soonest(replace(ON_NODE, gpus=2), amounts(32, ALL_MEMORY)) == NOW


def test_what_is_not_known_of_a_node_is_not_in_the_way():
    node = cluster(seen(host=None)).nodes["node1"]
    assert Room(node, 0, NOW).soonest(replace(ON_NODE, gpus=2), amounts(1000, 1000 * GIB)) == NOW


def test_there_is_no_room_before_enough_of_what_is_held_is_given_back():
    busy = room()
    busy.put(ON_NODE, amounts(20, 60 * GIB, 100), (), NOW)
    busy.put(ON_NODE, amounts(8, 60 * GIB, 200), (), NOW)
    assert busy.soonest(ON_NODE, amounts(4, 8 * GIB)) == NOW
    assert busy.soonest(ON_NODE, amounts(24)) == NOW + 100
    assert busy.soonest(ON_NODE, amounts(25)) == NOW + 200
    assert busy.soonest(ON_NODE, amounts(memory=68 * GIB)) == NOW + 100
    assert busy.soonest(ON_NODE, amounts(memory=69 * GIB)) == NOW + 200


def test_who_would_run_into_a_reservation_has_no_room_before_its_end():
    node = room(reservations=(reserved(100, 300),))
    assert node.soonest(ON_NODE, amounts(length=100)) == NOW
    assert node.soonest(ON_NODE, amounts(length=101)) == NOW + 300


def test_who_would_run_into_the_next_reservation_waits_for_that_as_well():
    node = room(reservations=(reserved(10, 20), reserved(50, 60)))
    assert node.soonest(ON_NODE, amounts(length=31)) == NOW + 60
    assert [node.earliest(ON_NODE, amounts(length=length), NOW)[0] for length in (10, 30)] == [NOW, NOW + 20]


def test_what_is_promised_from_a_moment_on_counts_for_who_begins_then():
    """The most is in use when the next of the others begins, be it at once."""
    node = room()
    node.put(ON_NODE, amounts(20), (), NOW + 50)
    assert node.fit(ON_NODE, amounts(12), NOW + 50) == []
    assert node.fit(ON_NODE, amounts(13), NOW + 50) is None
    assert node.fit(ON_NODE, amounts(13, length=50), NOW) == []
    assert node.fit(ON_NODE, amounts(13, length=51), NOW) is None


def test_memory_of_those_who_run_at_the_same_time_adds_up():
    node = room()
    node.put(ON_NODE, amounts(memory=60 * GIB), (), NOW)
    node.put(ON_NODE, amounts(memory=60 * GIB), (), NOW + 30)
    assert node.fit(ON_NODE, amounts(memory=8 * GIB), NOW) == []
    assert node.fit(ON_NODE, amounts(memory=9 * GIB), NOW) is None
    assert node.fit(ON_NODE, amounts(memory=68 * GIB, length=30), NOW) == []


def test_a_put_that_is_taken_back_was_never_there():
    node = room()
    seats = node.fit(ON_GPU, amounts(4, GIB), NOW)
    load = node.put(replace(ON_GPU, exclusive=True), amounts(4, GIB), seats, NOW)
    assert (node.free_cores, node.free_memory, node.open_seats) == (28, 127 * GIB, 1)
    node.take_back(seats, load)
    assert (node.free_cores, node.free_memory, node.open_seats) == (32, ALL_MEMORY, 2)
    assert node.fit(ON_NODE, amounts(32, ALL_MEMORY), NOW) == []


def test_the_share_in_use_is_that_of_which_more_is_used():
    node = room()
    assert node.in_use == 0
    node.put(ON_NODE, amounts(8, 96 * GIB), (), NOW)
    assert node.in_use == 0.75
    node.put(ON_NODE, amounts(20, 0), (), NOW)
    assert node.in_use == 0.875


def test_a_load_is_as_it_was_taken():
    node = room()
    sharing = ON_NODE.sharing
    assert node.put(ON_NODE, amounts(1, 2, 3), (), NOW, firm=True, numa=1) == Load(
        NOW, NOW + 3, 1, 2, exclusive=False, sharing=sharing, numa=1, sure=True, firm=True
    )
