"""A line of a program's output, as a terminal would leave it."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.terminal_line import COLUMNS, EDITS, is_crowded, pattern, plain, spans

untrusted = st.text(st.one_of(st.sampled_from("\x1b[]m;:0123458KGCDJ\r\b\t\a\\ab"), st.characters()), max_size=60)


@pytest.mark.parametrize(
    "said",
    [
        "\x1b[1;38;5;200mloss\x1b[0m",
        "\x1b]0;a title\x07loss",
        "\x1b]8;;http://x\x1b\\loss\x1b]8;;\x1b\\",
        "\x1b(Bloss\x1b[K",
        "10%\r50%\rloss",
        "10%\rloss\r",
        "lost\bs",
        "a very long bar\r\x1b[Kloss",
        "some\x1b[2K\x1b[1Gloss",
        "loss\x1b[?25l\x1b[5n\x1b[c\x07",
        "gloss\x1b[5D\x1b[Ploss\x1b[K",
    ],
)
def test_a_line_is_shown_as_a_terminal_would_leave_it(said):
    assert plain(said) == "loss"


def test_a_bar_that_is_written_over_by_a_shorter_text_keeps_its_end():
    assert plain("abcdef\rxy") == "xycdef"


@pytest.mark.parametrize(
    ("said", "look"),
    [
        ("\x1b[31m", "31"),
        ("\x1b[1m\x1b[31m", "1;31"),
        ("\x1b[31;1m", "1;31"),
        ("\x1b[1;31m\x1b[22m", "31"),
        ("\x1b[1;31m\x1b[m", ""),
        ("\x1b[97;104m", "97;104"),
        ("\x1b[38;5;200m", "38;5;200"),
        ("\x1b[38;2;1;2;3;48;5;4;4m", "4;38;2;1;2;3;48;5;4"),
        ("\x1b[38:2::1:2:3m", "38;2;1;2;3"),
        ("\x1b[48:5:9m", "48;5;9"),
        ("\x1b[4:3m", "4"),
        ("\x1b[31m\x1b[39m", ""),
        ("\x1b[38;5;300m", ""),
        ("\x1b[38m", ""),
        ("\x1b[8;5m", ""),  # hidden and blinking
        ("\x1b[>4;1m", ""),
    ],
)
def test_colours_are_kept(said, look):
    assert spans(said + "x") == [("x", look)]


def test_each_span_has_its_own_look():
    assert spans("a\x1b[31mb\x1b[0mc") == [("a", ""), ("b", "31"), ("c", "")]


def test_the_colours_of_a_bar_move_with_what_is_written_over_it():
    assert spans("\x1b[32m███\x1b[0m···\r\x1b[31m██") == [("██", "31"), ("█", "32"), ("···", "")]


@given(untrusted)
def test_whatever_is_in_a_line_it_stays_in_its_line(said):
    found = spans(said)
    assert "".join(text for text, _ in found).isprintable()
    assert all(text and set(look) <= set("0123456789;") for text, look in found)
    assert all(before[1] != after[1] for before, after in pairwise(found))


@given(st.text(st.characters(blacklist_categories=["C", "Z"])))
def test_text_without_controls_is_as_it_was(said):
    assert plain(said) == said


@given(st.text("\x1b[]m;:0123458ab\\ ", max_size=60))
def test_what_is_shown_is_found_in_the_bytes(said):
    if shown := plain(said):
        assert pattern(shown.encode()).search(said.encode()) or is_crowded(said.encode())


def test_a_far_column_costs_little():
    assert len(plain("\x1b[99999Gx")) <= COLUMNS + 1
    assert plain("\x1b[999999999Gx") == "x"


@pytest.mark.parametrize(
    "said",
    [
        "x" * 500_000 + "\x1b[1K" * 125_000,
        "\t" * 500_000 + "\x1b[2Kx" * 100_000,
        "\x1b[2K\x1b[9999Gx" * 80_000,
        f"\x1b[{';' * 1_000_000}m",
    ],
    ids=["blanks", "tabs", "columns", "parameters"],
)
def test_no_line_takes_time_that_grows_with_its_square(said):
    begun = time.process_time()
    assert len(plain(said)) <= EDITS + len(said)
    assert time.process_time() - begun < 10  # without a bound, minutes


def test_a_search_takes_no_time_that_grows_with_the_square_of_the_text():
    text = b"\x1b[a" * 300_000
    begun = time.process_time()
    assert not pattern(b"ab").search(text)
    assert is_crowded(text)
    assert time.process_time() - begun < 10
