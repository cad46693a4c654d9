"""Several plots over the same time: they fill their room, nothing is cut, and the cursor says what is below it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.history import between, gib, of_gpu, of_gpus, of_node, percent, shown, speed
from agentless.client.panels import Curve, Plot, Shown, drawn, least_height
from agentless.client.plot import Frame, Series, clock_ticks, framed, spread

DAY = 86400.0
NOON = 1_795_867_200.0
"""2026-11-28 12:00 UTC."""
VALUES = st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=300)
PLOTS = st.lists(st.lists(VALUES, min_size=1, max_size=9), min_size=1, max_size=9).map(
    lambda plots: [
        Plot(f"Plot {letter}", [Curve(str(at), "", each) for at, each in enumerate(values)], 100.0, percent)
        for letter, values in zip("ABCDEFGHI", plots, strict=False)
    ]
)
SPANS = st.sampled_from([60.0, 600.0, 3600.0, DAY, 7 * DAY, 30 * DAY])


def texts(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


@given(PLOTS, SPANS, st.integers(30, 240), st.integers(5, 80), st.floats(0, 1.2))
def test_plots_fill_their_room_and_cut_nothing(plots, span, width, height, place):
    found = Shown(NOON - span, NOON, plots)
    lines, areas = drawn(found, width, height, NOON - span + place * span)
    assert {len(line) for line in texts(lines)} == {width}
    assert len(lines) >= min(height, least_height(found, width))
    assert len(areas) == len(plots)
    text = "\n".join(texts(lines))
    assert text.count("now") == len(plots)
    for plot in plots:
        assert plot.title in text
        for curve in plot.curves if len(plot.curves) > 1 else ():
            assert re.search(rf"━{curve.mark} (\d+%|-)", text)


@given(PLOTS, st.integers(64, 240), st.integers(1, 80), st.floats(0, 0.999))
def test_each_gpu_has_a_lane_of_its_own_with_its_number_and_its_value_at_the_cursor(plots, width, height, place):
    (plot, *_) = [replace(each, apart=True) for each in plots]
    found = Shown(NOON - 600, NOON, [plot])
    lines, (area,) = drawn(found, width, height, at := NOON - 600 + place * 600)
    shown, column = texts(lines), found.column(at, area.columns)
    assert {len(line) for line in shown} == {width}
    if len(plot.curves) == 1:
        return
    assert "each 0 to 100%" in shown[0]
    wanted = [(curve.mark, percent(spread(curve.values, area.columns)[column])) for curve in plot.curves]
    marked = [line for line in shown if "┤" in line]
    assert [(line.split("┤")[0].strip(), line.split()[-1]) for line in marked] == wanted
    assert len({area.rows // len(wanted), *(b - a for a, b in pairwise(map(shown.index, marked)))}) == 1


def test_in_a_lane_the_height_tells_how_much_and_a_gap_that_nothing_is_known():
    curves = [Curve(str(at), "", values) for at, values in enumerate(([0.0, 100.0, None], [50.0, None, 20.0]))]
    lines, _ = drawn(Shown(NOON - 600, NOON, [Plot("A", curves, 100.0, percent, apart=True)]), 16, 4)
    assert [line[2:11] for line in texts(lines)[1:3]] == ["▁▁▁▇▇▇   ", "▄▄▄   ▂▂▂"]


@given(PLOTS, st.integers(64, 240), st.integers(5, 80), st.floats(0, 0.999))
def test_the_cursor_tells_the_values_of_its_column(plots, width, height, place):
    found = Shown(NOON - 600, NOON, plots[:1])
    at = NOON - 600 + place * 600
    lines, (area,) = drawn(found, width, height, at)
    column = found.column(at, area.columns)
    legend = " ".join(texts(lines[: area.y]))
    wanted = [percent(spread(curve.values, area.columns)[column]) for curve in plots[0].curves]
    assert re.findall(r"\d+%|-(?= |$)", legend) == wanted
    below = [line[area.x + column] for line in texts(lines[area.y : area.y + area.rows])]
    assert set("".join(below)) == {"│"}  # whatever is below it, and without colours


@given(st.integers(0, 500), st.integers(1, 300))
def test_a_moment_is_in_the_column_that_it_was_read_from(column, columns):
    found = Shown(NOON - DAY, NOON, [])
    assert found.column(found.moment(min(column, columns - 1), columns), columns) == min(column, columns - 1)


@given(SPANS, st.integers(20, 240))
def test_times_are_those_of_a_clock_and_do_not_touch(span, columns):
    ticks = clock_ticks(NOON - span, NOON, columns)
    frame = Frame(5, 0, ticks)
    (*_, axis) = texts(framed([], columns + 5, 8, frame, top=1.0, words=str))
    assert set(axis.split()) <= {word for _, word in ticks}
    assert len(axis.split()) >= len(ticks) - 2
    assert all(re.fullmatch(r"\d\d:\d\d(:\d[05])?|\d\d-\d\d", word) for _, word in ticks)


def test_a_day_has_its_date_at_midnight_and_even_hours_between():
    assert [word for _, word in clock_ticks(NOON - DAY, NOON, 60)] == [
        "12:00",
        "16:00",
        "20:00",
        "11-28",
        "04:00",
        "08:00",
        "12:00",
    ]


def test_hours_are_those_of_the_zone(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        words = [word for _, word in clock_ticks(NOON - DAY, NOON, 60)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert words == ["20:00", "11-28", "04:00", "08:00", "12:00", "16:00"]


def test_without_colours_each_curve_has_its_mark_at_its_end():
    some = [Series("", [value], f"s{at}", str(at)) for at, value in enumerate([0.0, 100.0, 0.0, 0.0, 50.0])]
    lines = texts(framed(some, 40, 10, Frame(6, 6, []), top=100.0, words=percent))
    assert [line[34:].strip() for line in lines] == ["1", *[""] * 3, "4", *[""] * 3, "0,2,3", ""]


def test_marks_that_do_not_fit_are_counted():
    some = [Series("", [0.0], "", str(at)) for at in (0, 2, 4, 6, 8)]
    lines = texts(framed(some, 40, 10, Frame(6, 6, []), top=100.0, words=percent))
    assert lines[-2][34:] == " ×5   "


def test_spare_lines_go_to_plots_that_can_use_them():
    lanes = [Plot(letter, [Curve(str(at), "", [1.0]) for at in range(8)], 1.0, str, apart=True) for letter in "AB"]
    plots = [*lanes, *(Plot(letter, [Curve("", "", [1.0])], 1.0, str) for letter in "CD")]
    lines, areas = drawn(Shown(NOON - 600, NOON, plots), 100, 24)
    assert [area.rows for area in areas] == [8, 8, 12, 12]
    assert all(line.strip() for line in texts(lines))


@pytest.mark.parametrize(
    ("width", "height", "rows"),
    [(50, 30, [1, 1, 1]), (80, 30, [1, 2]), (200, 20, [3]), (200, 40, [1, 2]), (200, 60, [1, 1, 1])],
)
def test_as_many_stand_beside_each_other_as_stay_readable(width, height, rows):
    plots = [Plot(letter, [Curve("", "", [1.0])], 1.0, str) for letter in "ABC"]
    _, areas = drawn(Shown(NOON - 600, NOON, plots), width, height)
    tops = [area.y for area in areas]
    assert [tops.count(top) for top in dict.fromkeys(tops)] == rows


GPU = {"node": "n1", "uuid": "GPU-1", "memory_total_mib": 81920, "power_limit_w": 400}
ROW = {
    "node": "n1", "index": 0, "number": 0, "uuid": "GPU-1", "utilization_pct": [10.0, 90.0, None, 50.0],
    "memory_used_mib": [0, 40960, None, 81920], "temperature_c": [30] * 4, "power_w": [60, 420, None, 80],
}  # fmt: skip


def test_a_gpu_has_utilization_and_memory_in_one_plot_and_its_limits_on_top():
    load, temperature, power = of_gpu(ROW, GPU)
    assert [curve.values for curve in load.curves] == [[10.0, 90.0, None, 50.0], [0.0, 50.0, None, 100.0]]
    assert (load.top, temperature.top, power.top) == (100.0, 100.0, 420)  # power went beyond its limit


def test_the_gpus_of_a_node_are_curves_of_the_same_plots():
    second = {**ROW, "index": 1, "number": "1/0", "uuid": "MIG-2"}
    plots = of_gpus([ROW, second], [GPU, {**GPU, "uuid": "MIG-2", "memory_total_mib": None}])
    assert [plot.title for plot in plots] == ["GPU utilization", "GPU memory", "GPU temperature", "GPU power"]
    assert [curve.mark for curve in plots[1].curves] == ["0", "1/0"]
    assert plots[1].top == 81920


def test_of_a_node_is_shown_what_was_read():
    fields = ("cores_busy", "memory_used_mib", "disk_used_mib", "temperature_c")
    found = {**{name: [None, 1.0] for name in fields}, "temperature_c": [None, None],
             "network_in_bytes_per_second": [None, 3000.0], "network_out_bytes_per_second": [None, None]}  # fmt: skip
    plots = of_node(found, {"cores": 64, "memory_mib": 1024, "disk_total_mib": None})
    assert [(plot.title, plot.top) for plot in plots] == [
        ("Cores busy", 64), ("Memory", 1024), ("Disk", 1.0), ("Network", 4096.0),
    ]  # fmt: skip


def test_of_an_ended_task_is_shown_only_its_time():
    found = {"at": NOON, "step": 60.0, "gpus": [{**ROW, "utilization_pct": list(range(60))}]}
    ended = between(found, 60, NOON - 3000, NOON - 2400, lambda part: of_gpus(part["gpus"], [GPU]))
    assert (ended.begin, ended.end, ended.is_live) == (NOON - 3000, NOON - 2400, False)
    assert ended.plots[0].curves[0].values == list(range(10, 20))
    assert shown(found, 60, []).begin == NOON - 3600


@pytest.mark.parametrize(
    ("words", "value", "text"),
    [
        (gib, 0, "0G"), (gib, 512, "0.5G"), (gib, 62669, "61G"), (gib, 1875000, "1.8T"), (gib, None, "-"),
        (speed, 0, "0B/s"), (speed, 1023, "1.0K/s"), (speed, 9e7, "86M/s"), (speed, 3e9, "2.8G/s"), (speed, None, "-"),
    ],
)  # fmt: skip
def test_numbers_are_short(words, value, text):
    assert words(value) == text
