"""A log that is read in several goes, as Docker prints it with times: nothing is lost and nothing comes twice."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentless.engines.docker.timestamps import MARK, MARKS, PIECE, StampedReading
from agentless.errors import UsageError
from agentless.model.containers.log_query import OVERLAP, LogCursor, LogPosition, LogQuery

BEGIN = 1_780_000_000
Entry = tuple[int, int, bytes]
"""Nanoseconds after the begin, a stream, and a line or a piece of one."""


def stamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(BEGIN + seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def entries_of(lines: list[tuple[int, int, bytes]]) -> list[Entry]:
    """As the engine keeps lines, each `later` than the one before: a long one in pieces, all of them with its time."""
    now, found = 0, list[Entry]()
    for later, stream, line in lines:
        now += later
        text = line + b"\n"
        found += [(now, stream, text[at : at + PIECE]) for at in range(0, len(text), PIECE)]
    return found


def printed(entries: list[Entry], since: float | None) -> list[tuple[int, bytes]]:
    """What `docker logs --timestamps --since` prints of them."""
    first = float("-inf") if since is None else (since - BEGIN) * 1e9
    shown = [(stream, f"{stamp(at)} ".encode() + text) for at, stream, text in entries if at >= first]
    return [(stream, b"".join(text for _, text in some)) for stream, some in groupby(shown, key=itemgetter(0))]


def read(entries: list[Entry], place: LogPosition | None, cuts: list[int], *, shown: bool = False):
    """What a reading gives of it in pieces of these sizes, and the place that it comes to; the rest does not arrive."""
    reading, got = StampedReading(place, shown=shown), {1: b"", 2: b""}
    data = printed(entries, place.since if place else None)
    for stream, text in data:
        at = 0
        while at < len(text):
            if not cuts:
                return got, reading.place
            size = cuts.pop()
            for fd, piece in reading(stream, text[at : at + size]):
                got[fd] += piece
            at += size
    return got, reading.place


def all_of(entries: list[Entry], stream: int) -> bytes:
    return b"".join(text for _, at, text in entries if at == stream)


LINES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1000, 10**9, 20 * 10**9]),
        st.sampled_from([1, 2]),
        st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))
        | st.sampled_from([b"x" * PIECE, b"y" * (PIECE - 1), b"z" * (2 * PIECE + 5), stamp(0).encode() + b" mine"]),
    ),
    max_size=12,
)
CUTS = st.lists(st.integers(1, 60) | st.integers(1, 2 * PIECE), max_size=60)


@given(LINES, st.lists(CUTS, max_size=4))
@example([(0, 1, b"same time"), (0, 1, b"same time")], [[31 + 10]])
def test_a_log_that_breaks_off_anywhere_is_read_whole(lines, goes):
    entries = entries_of(lines)
    got, place = {1: b"", 2: b""}, None
    for cuts in [*goes, [10**6] * 10_000]:
        more, place = read(entries, place, cuts)
        got = {stream: got[stream] + more[stream] for stream in got}
    assert got == {stream: all_of(entries, stream) for stream in (1, 2)}


@given(LINES)
def test_the_times_that_are_shown_are_those_of_the_lines(lines):
    entries = entries_of([(later, stream, line[:40]) for later, stream, line in lines])
    got, _ = read(entries, None, [10**6] * 1000, shown=True)
    assert got[1] == b"".join(f"{stamp(at)} ".encode() + text for at, stream, text in entries if stream == 1)


def test_lines_that_the_engine_has_thrown_away_hide_none_that_came_later():
    entries = entries_of([(1, 1, b"%d" % number) for number in range(9)])
    _, place = read(entries, None, [3 * 33])
    assert read(entries[6:], place, [100] * 100)[0][1] == b"6\n7\n8\n"


def test_what_the_docker_command_says_itself_is_no_output():
    reading = StampedReading(None, shown=False)
    assert list(reading(2, b"Error response from daemon: gone\n" + stamp(1).encode() + b" err\n")) == [(2, b"err\n")]


def test_a_line_that_the_engine_has_not_cut_keeps_what_looks_like_a_time_in_it():
    line = b"x" * PIECE + f"{stamp(9)} mine\n".encode()
    assert list(StampedReading(None, shown=False)(1, f"{stamp(1)} ".encode() + line)) == [(1, line)]


def test_of_a_long_log_little_is_asked_for_again():
    """Also where one stream has said nothing, or nothing for long."""
    reading = StampedReading(None, shown=False)
    list(reading(2, f"{stamp(0)} once\n".encode()))
    size = MARK // 4
    for second in range(1, 4 * MARKS * 3):
        list(reading(1, f"{stamp(second * 10**9)} {'x' * (PIECE - 1)}\n".encode() * (size // PIECE)))
    assert BEGIN + second - reading.place.since <= 4 * (MARKS + 2) + OVERLAP


def test_a_position_is_a_word_that_is_read_back():
    place = LogPosition((stamp(5), 7), None, stamp(0))
    for position in (LogCursor("2mz5d8w6h0r-2"), LogCursor("a b", (3, 4), place)):
        assert LogCursor.parse(str(position)) == position
    assert LogQuery(position=LogCursor("x", place=place)).place == place


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1,[0,0],null]", '["x",[0],null]', '["x",[-1,0],null]', '["x",[0,0],[]]', '["x",[0,0],["a","b","c"]]',
     '["x",[0,0],[["2026-13-24T07:45:10.406937539Z",1],null,null]]', '["x",[true,0],null]', "[" * 100_000],
)  # fmt: skip
def test_another_word_is_no_position(text):
    with pytest.raises(UsageError, match="not a position in a log"):
        LogCursor.parse(text)
