"""Plots in braille dots, with axes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agentless.client.console import in_font
from agentless.client.plot import Series, dotted, plot
from agentless.tui.widgets import look

VALUES = st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=500)
EMPTY = "\u2800"


def percent(value: float) -> str:
    return f"{value:.0f}%"


def minutes(place: float) -> str:
    return f"-{60 - 60 * place:.0f}m" if place < 1 else "now"


def texts(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def drawn(*values: list[float | None], width: int = 40, height: int = 9, **more) -> list[str]:
    series = [Series(f"s{at}", each, f"s{at}") for at, each in enumerate(values)]
    return texts(plot(series, width, height, top=100.0, words=percent, times=minutes, **more))


@given(VALUES, st.integers(1, 80), st.integers(1, 8))
def test_a_curve_fills_its_room_and_leaves_gaps_empty(values, width, rows):
    lines = texts(dotted([Series("", values, "one")], width, rows, 100.0, filled=True))
    assert [len(line) for line in lines] == [width] * rows
    if all(value is None for value in values):
        assert set("".join(lines)) == {" "}
    if all(value is not None for value in values):
        assert " " not in lines[-1]


def test_a_filled_curve_goes_from_the_floor_to_the_top():
    low, high = (texts(dotted([Series("", [each] * 4, "one")], 2, 2, 100.0, filled=True)) for each in (0.0, 100.0))
    assert low == ["  ", "⣀⣀"]
    assert high == ["⣿⣿", "⣿⣿"]


@given(st.lists(VALUES, min_size=1, max_size=4), st.integers(12, 200), st.integers(3, 40))
def test_a_plot_fills_its_room_whatever_is_drawn(values, width, height):
    lines = drawn(*values, width=width, height=height)
    assert len(lines) == height
    assert {cell_len(line) for line in lines} == {width}


def test_the_axes_say_how_much_and_when():
    lines = drawn([50.0] * 10, width=60, height=8)
    assert [line[:4] for line in lines if line[4] == "┤"] == ["100%", " 50%", "  0%"]
    assert lines[-1].split() == ["-60m", "-40m", "-20m", "now"]
    assert lines[-1].endswith("now")


def test_a_line_without_values_is_broken_and_steps_are_joined():
    lines = texts(dotted([Series("", [0.0, 100.0, None, None, 100.0, 100.0], "one")], 3, 2, 100.0))
    assert lines == ["⢸ ⠉", "⡸  "]


def test_a_load_that_goes_up_and_down_is_a_line_through_its_means_in_a_band_of_all_values():
    values = [0.0, 100.0] * 300
    lines = dotted([Series("", values, "line", band="band")], 30, 8, 100.0)
    styles = ["".join(style[0] * len(text) for text, style in line) for line in lines]
    assert styles == ["b" * 30] * 3 + ["l" * 30] + ["b" * 30] * 4
    (curve,) = {text for line in lines for text, style in line if style == "line"}
    assert set(curve) <= set("⠉⠒⠤⣀")  # the line alone, so that it is seen without colours


@given(st.lists(st.none() | st.floats(0, 100), min_size=80, max_size=80))
def test_a_band_goes_no_further_than_the_values_and_a_gap_stays_one(values):
    (drawn,) = texts(dotted([Series("", values, "line", band="band")], 40, 1, 100.0))
    for x, char in enumerate(drawn):
        assert (char == " ") == (values[2 * x] is values[2 * x + 1] is None)
    same = [None if value is None else 42.0 for value in values]
    banded, plain = (texts(dotted([Series("", same, "line", band=band)], 40, 5, 100.0)) for band in ("band", ""))
    assert banded == plain


def test_on_the_linux_console_a_curve_is_of_half_blocks_and_what_is_around_it_is_shaded():
    signs = in_font({"TERM": "linux"})
    filled = texts(dotted([Series("", [0.0, 40.0, 70.0, 100.0], "one")], 4, 1, 100.0, filled=True))
    assert filled[0].translate(signs) == "_▄██"
    lines = texts(dotted([Series("", [0.0, 100.0] * 300, "line", band="band")], 30, 8, 100.0))
    assert {line.translate(signs)[5] for line in lines} == {"░", "_"}
    assert "░" * 10 in lines[0].translate(signs)
    assert all(len(sign) == cell_len(chr(lacks)) for lacks, sign in signs.items())
    assert not any(0x2800 <= ord(char) < 0x2900 for sign in signs.values() for char in sign)
    assert not in_font({"TERM": "xterm"})
    assert not in_font({"TERM": "linux", "TEXTUAL_DRIVER": "a page"})


def test_each_curve_has_its_style_and_the_cursor_is_seen():
    some = [Series("a", [10.0] * 8, "first"), Series("b", [90.0] * 8, "second")]
    lines = plot(some, 12, 9, top=100.0, words=percent, times=minutes, cursor=3)
    styles = {style for line in lines for _, style in line}
    assert {"first", "second", "axis", "cursor"} <= styles
    assert sum(style == "cursor" for line in lines for _, style in line) == 8


def test_the_last_values_are_at_the_right_of_a_short_curve():
    assert look.curve([*[None] * 4, 100.0, 100.0], 3, 1) == ["  ⣿"]
    assert look.spark([*[None] * 4, 0.0, 100.0, 100.0, 100.0], 4) == "  ▄█"
