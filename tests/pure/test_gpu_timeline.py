"""A GPU as a place for tasks: when it opens, and whether it is open all the time between two moments."""

from __future__ import annotations

from math import inf

import pytest

from agentless.model.nodes.cluster import Gpu
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.rules.scheduling.timeline.gpu import FAR, GpuTimeline
from tests.pure.build import NOW, process, reading

GIB = 1 << 30
PAIR = Sharing(2, GIB)
BESIDE = Sharing(strangers=True)


def timeline(*taken, foreign=False, closed="", **changes):
    """A GPU with 22.5 GiB; `taken` in seconds from now, with other terms than ALONE as the third."""
    strangers = (process("node1", 0),) if foreign else ()
    found = GpuTimeline(Gpu(reading("node1", 0, **changes), "free", strangers=strangers, closed=closed), None)
    for begin, end, *terms in taken:
        found.taken.append((NOW + begin, NOW + end, *(terms or [ALONE])))
    return found


def opens(found, sharing=ALONE):
    """In how many seconds."""
    return found.opens(NOW, sharing) - NOW


# ---------------------------------------------------------------------- what a GPU is


def test_a_gpu_has_what_its_driver_says():
    found = timeline(utilization_pct=7)
    assert (found.name, found.total, found.free, found.utilization) == ("NVIDIA L4", 23034 << 20, 23033 << 20, 7)


def test_a_gpu_of_which_nothing_is_known_has_no_name_no_memory_and_no_work():
    found = timeline(name=None, memory_total_mib=None, memory_used_mib=None, utilization_pct=None)
    assert (found.name, found.total, found.free, found.utilization) == ("", 0, 0, 0)


def test_all_of_a_gpu_is_free_of_which_only_the_size_is_known():
    assert timeline(memory_used_mib=None).free == 23034 << 20


# ---------------------------------------------------------------------- alone


def test_a_gpu_that_nobody_has_opens_now():
    assert opens(timeline()) == 0


@pytest.mark.parametrize(
    ("taken", "moment"),
    [
        ([(-10, 5)], 5),
        ([(0, 10)], 10),
        ([(1, 10)], 0),
        ([(-10, -5)], 0),
        ([(-10, 5), (5, 8)], 8),
        ([(-10, 5), (6, 8)], 5),
        ([(6, 8), (-10, 5)], 5),
        ([(-10, 8), (2, 5)], 8),
        ([(-10, 50, PAIR), (20, 30, PAIR)], 50),
        ([(-10, inf)], inf),
    ],
)
@pytest.mark.parametrize("sharing", [ALONE, Sharing(1, GIB)])
def test_it_opens_in_the_first_gap_between_those_who_have_it(taken, moment, sharing):
    assert opens(timeline(*taken), sharing) == moment


@pytest.mark.parametrize(
    ("begin", "end", "is_open"),
    [(0, 10, True), (0, 11, False), (10, 20, False), (19, 30, False), (20, 30, True), (0, 30, False), (12, 13, False)],
)
@pytest.mark.parametrize("sharing", [ALONE, PAIR])
def test_one_who_has_it_alone_has_it_from_the_beginning_up_to_the_end(begin, end, is_open, sharing):
    assert timeline((10, 20)).is_open(NOW + begin, NOW + end, sharing) is is_open


# ---------------------------------------------------------------------- with strangers


def test_a_gpu_that_strangers_use_is_for_those_who_share_it_with_them_only():
    found = timeline(foreign=True)
    assert found.opens(NOW) == FAR
    assert opens(found, BESIDE) == 0
    assert not found.is_open(NOW, NOW + 1)
    assert found.is_open(NOW, NOW + 1, BESIDE)


def test_who_shares_with_strangers_shares_with_no_task():
    found = timeline((0, 10), foreign=True)
    assert opens(found, BESIDE) == 10
    assert not found.is_open(NOW, NOW + 1, BESIDE)
    assert opens(timeline((0, 10)), BESIDE) == 10


# ---------------------------------------------------------------------- shared


@pytest.mark.parametrize(
    ("taken", "moment"),
    [
        ([(-10, 9, PAIR)], 0),
        ([(-10, 9, PAIR), (-10, 7, PAIR)], 7),
        ([(-10, 9, PAIR), (0, 7, PAIR)], 7),
        ([(-10, 9, PAIR), (-10, 0, PAIR)], 0),
        ([(-10, 9)], 9),
        ([(-10, inf)], inf),
        ([(-10, 9, Sharing(3, 22 * GIB))], 9),
    ],
)
def test_a_share_opens_when_so_few_have_it_that_one_more_may_come(taken, moment):
    assert opens(timeline(*taken), PAIR) == moment


@pytest.mark.parametrize(
    ("begin", "end", "is_open"),
    [(0, 10, True), (0, 11, False), (10, 11, False), (19, 21, False), (20, 21, True)],
)
def test_a_share_is_open_as_long_as_there_are_never_too_many(begin, end, is_open):
    """One has it all the time, another one from 10 to 20."""
    found = timeline((0, 100, PAIR), (10, 20, PAIR))
    assert found.is_open(NOW + begin, NOW + end, PAIR) is is_open


def test_a_share_is_not_open_where_the_memory_of_all_does_not_fit():
    assert timeline((0, 9, Sharing(3, 21 * GIB))).is_open(NOW, NOW + 9, PAIR)
    assert not timeline((0, 9, Sharing(3, 22 * GIB))).is_open(NOW, NOW + 9, PAIR)


def test_nobody_joins_on_a_gpu_that_is_closed_for_as_long_as_somebody_has_it():
    found = timeline((-10, 9, PAIR), closed="one may compute")
    assert opens(found, PAIR) == 9
    assert not found.is_open(NOW, NOW + 1, PAIR)
    assert found.is_open(NOW + 9, NOW + 10, PAIR)
