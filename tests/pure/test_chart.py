"""A bar chart in a terminal of any width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.cli.usage.chart import bars

days = st.lists(
    st.tuples(st.sampled_from(["Mon 05-04", "Tue"]), st.just(0.0) | st.floats(0.001, 1e6)), min_size=1, max_size=40
)


def test_bars_are_as_long_as_their_values_to_an_eighth() -> None:
    assert bars([("Mon", 8.0), ("Tue", 4.25), ("Wed", 0.0), ("Thu", 0.01)], 3 + 2 + 8 + 2 + 4) == [
        "Mon  ████████  8.00",
        "Tue  ████▎     4.25",
        "Wed            0.00",
        "Thu  ▏         0.01",
    ]


@given(days, st.integers(30, 250))
def test_no_line_is_longer_than_the_terminal_is_wide(values: list[tuple[str, float]], columns: int) -> None:
    assert max(map(len, bars(values, columns))) <= columns


@given(days, st.integers(30, 250))
def test_whoever_has_more_has_no_shorter_bar_and_what_is_not_nothing_is_seen(
    values: list[tuple[str, float]], columns: int
) -> None:
    drawn = bars(values, columns)
    lengths = [line.count("█") * 8 + sum(" ▏▎▍▌▋▊▉".find(mark) for mark in line if mark in "▏▎▍▌▋▊▉") for line in drawn]
    ordered = sorted(zip((value for _, value in values), lengths, strict=True))
    assert [length for _, length in ordered] == sorted(lengths)
    assert all((length > 0) == (value > 0) for value, length in ordered)


@pytest.mark.parametrize("values", [[], [("Mon", 0.0)]])
def test_where_nothing_was_used_no_bar_is_drawn(values: list[tuple[str, float]]) -> None:
    assert "█" not in "".join(bars(values, 80))
