"""What becomes of the readings of a GPU: nothing is lost by putting points together, and nothing is made up."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.nodes.gpu import GpuReading
from agentless.model.nodes.host_load import Disk, HostLoad
from agentless.rules.usage.series import GPU, LEVELS, NODE, POINTS, Block, Grid, curves, fold, level_for

START = 36_000 * 50_000  # where a block of every level begins
EMPTY = GpuReading(0, "GPU-0")
FULL = replace(EMPTY, utilization_pct=50, memory_used_mib=1000, temperature_c=40, power_w=99.9)

readings = st.builds(
    GpuReading,
    index=st.just(0),
    uuid=st.just("GPU-0"),
    utilization_pct=st.none() | st.integers(0, 100),
    memory_used_mib=st.none() | st.integers(0, 300_000),
    temperature_c=st.none() | st.integers(0, 120),
    power_w=st.none() | st.integers(0, 20_000).map(lambda tenths: tenths / 10),
)
moments = st.lists(st.tuples(st.integers(0, LEVELS[-1].block - 1), readings), max_size=40)


def minutes(taken):
    """The blocks of the finest level, by when they begin, of these readings at seconds after `START`."""
    found: dict[int, Block] = {}
    for second, reading in taken:
        start = START + second // POINTS * POINTS
        found.setdefault(start, Block()).read(second % POINTS, reading)
    return found


def coarser(blocks, finer, level):
    found: dict[int, Block] = {}
    for start, block in blocks.items():
        into = found.setdefault(start // level.block * level.block, Block())
        fold(block, start, finer.width, into, level.width)
    return found


def shown(blocks, width, span=None, points=1):
    span = span or LEVELS[-1].block
    grid = Grid(START + span, span, points)
    return curves([(start, width, block) for start, block in blocks.items()], grid, width)


@given(moments)
def test_the_mean_and_the_largest_of_a_span_are_those_of_its_readings_at_every_level(taken):
    taken = [(max(second, LEVELS[-1].width), reading) for second, reading in taken]  # the span begins after its start
    for level in LEVELS:
        blocks = minutes(taken) if level == LEVELS[0] else coarser(minutes(taken), LEVELS[0], level)
        found = shown(blocks, level.width)
        for metric in GPU.metrics:
            known = [value for _, reading in taken if (value := getattr(reading, metric)) is not None]
            if known:
                assert found[metric] == (pytest.approx(sum(known) / len(known), abs=0.0501),)
                assert found[f"{metric}_max"] == (max(known),)
            else:
                assert found[metric] == found[f"{metric}_max"] == (None,)


@given(moments)
def test_it_does_not_matter_over_which_levels_a_coarse_one_is_reached(taken):
    step_by_step = minutes(taken)
    for finer, level in pairwise(LEVELS):
        step_by_step = coarser(step_by_step, finer, level)
    at_once = coarser(minutes(taken), LEVELS[0], LEVELS[-1])
    assert [(b.counts, b.totals, b.peaks) for b in step_by_step.values()] == [
        (b.counts, b.totals, b.peaks) for b in at_once.values()
    ]


def test_what_is_not_known_is_not_shown_as_nothing():
    blocks = minutes([(5, EMPTY), (15, FULL), (16, replace(FULL, utilization_pct=None)), (55, EMPTY)])
    found = shown(blocks, 1, span=60, points=6)
    assert found["utilization_pct"] == (None, 50.0, None, None, None, None)
    assert found["power_w_max"] == (None, 99.9, None, None, None, None)


@pytest.mark.parametrize("lie", [-1, -(10**30), 2**28, 2**31, 10**30, float("nan"), float("inf")])
def test_what_no_gpu_can_have_is_not_known(lie):
    found = shown(minutes([(1, replace(FULL, memory_used_mib=lie))]), 1, span=60)
    assert (found["memory_used_mib"], found["temperature_c"]) == ((None,), (40.0,))


def test_a_reading_stands_until_the_next_one_and_not_for_long():
    found = shown(minutes([(10, FULL)]), 1, span=60, points=60)
    known = [second for second, value in enumerate(found["utilization_pct"], 1) if value is not None]
    assert known == [10 + second for second in range(int(GPU.hold))]


def test_a_coarse_point_stands_for_its_own_time_only():
    blocks = coarser(minutes([(20, FULL), (40, FULL)]), LEVELS[0], LEVELS[1])
    found = shown(blocks, 10, span=60, points=60)
    known = [second for second, value in enumerate(found["utilization_pct"], 1) if value is not None]
    assert known == [*range(20, 30), *range(40, 50)]


def test_nothing_outside_the_span_is_shown():
    found = shown(minutes([(0, FULL), (30, FULL), (60, replace(FULL, utilization_pct=99))]), 1, span=59)
    assert found["utilization_pct"] == (50.0,)


def test_a_mean_is_shown_with_one_decimal_and_nothing_is_a_reading_too():
    taken = [(second, replace(FULL, utilization_pct=percent)) for second, percent in ((1, 0), (2, 0), (3, 100))]
    found = shown(minutes(taken), 1, span=60)
    assert (found["utilization_pct"], found["utilization_pct_max"]) == ((33.3,), (100.0,))


def test_two_blocks_of_the_same_time_add_up():
    one, other = Block(), Block()
    one.read(3, FULL)
    other.read(3, replace(FULL, utilization_pct=100, power_w=None))
    one.take(other)
    found = shown({START: one}, 1, span=60)
    assert (found["utilization_pct"], found["utilization_pct_max"], found["power_w"]) == ((75.0,), (100.0,), (99.9,))


@pytest.mark.parametrize(
    ("span", "points", "width"),
    [
        (60, 60, 1), (600, 600, 1), (600, 60, 10), (601, 601, 10), (3600, 60, 60), (3600, 3600, 10), (86400, 60, 600),
        (86400, 1440, 60), (86401, 3600, 600), (30 * 86400, 10, 600), (31 * 86400, 3600, 600),
    ],
)  # fmt: skip
def test_the_level_covers_the_span_and_is_not_finer_than_asked_for(span, points, width):
    assert level_for(span, points).width == width


def test_the_points_and_the_blocks_of_a_level_make_up_those_of_the_next():
    for finer, level in pairwise(LEVELS):
        assert level.width % finer.width == level.block % finer.block == finer.block % level.width == 0
        assert finer.kept < level.kept
        assert finer.kept >= level.block, "a crash must leave the points of which a block is made up again"


def test_a_reading_of_a_machine_is_shown_until_the_next_which_comes_later():
    block = Block(NODE)
    for second in (0, 10, 20):
        block.read(second, HostLoad(cores_busy=1.23, disk=Disk("/", 1600, 2000), network_out_bytes_per_second=0.0))
    found = curves([(START, 1, block)], Grid(START + 59, 59, 59), 1, NODE)
    known = [second for second, value in enumerate(found["cores_busy"], 1) if value == 1.2]
    assert known == [*range(10, 45)]
    assert {*found["disk_used_mib"]} == {1600.0, None}
    assert {*found["network_out_bytes_per_second"]} == {0.0, None}
    assert {*found["temperature_c"]} == {None}
