"""The lines of a log by number: the same however its bytes were parted, in whichever pages they are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.formats import log_index
from agentless.formats.frames import HEAD, NOTE, Frame, frame
from agentless.formats.log_index import LogIndex, Part
from agentless.model.terminal_line import plain

frames = st.lists(
    st.tuples(st.sampled_from([1, 1, 2, NOTE]), st.text("ab\n\r", max_size=12).map(str.encode)), max_size=20
)
streams = st.sampled_from([None, 1, 2])


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Blocks that a short log has many of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_index, "BLOCK", 24)
        patch.setattr(log_index, "_SHORT", 3)
        yield


class Log:
    """A log in memory, as it would be in a file."""

    def __init__(self, said: list[Frame]) -> None:
        self.index, self.data = LogIndex(), b""
        for stream, data in said:
            self.data += frame(stream, data)
            self.index.add(stream, HEAD + len(data), data)

    def read(self, place: int, size: int) -> bytes:
        return self.data[place : place + size]

    def lines(self, *args: object, **more: object) -> tuple[int, list[Frame]]:
        return self.index.lines(self.read, Part(*args, **more))

    def find(self, words: str, first: int, *, back: bool = False, only: int | None = None) -> int | None:
        """As who asks again until the search is over."""
        while True:
            found = self.index.find(self.read, words, first, back=back, only=only, step=48)
            if found.line is not None or found.go_on is None:
                return found.line
            assert found.go_on < first if back else found.go_on > first or not found.go_on
            first = found.go_on

    def matches(self, words: str, *, only: int | None) -> list[int]:
        """All lines, as who asks again until the search is over."""
        lines: list[int] = []
        go_on: int | None = 0
        for _ in range(1000):
            found = self.index.matches(self.read, words, go_on, only=only, step=48)
            lines += found.lines
            go_on = found.go_on
            if go_on is None:
                return lines
        raise AssertionError("the search has no end")


def expected(said: list[Frame], only: int | None) -> list[Frame]:
    """The lines, byte by byte."""
    rest, lines = {1: b"", 2: b""}, []
    for stream, data in said:
        if stream == NOTE:
            lines.append((stream, data))
            continue
        for byte in data:
            if byte == 10:
                lines.append((stream, rest[stream]))
                rest[stream] = b""
            else:
                rest[stream] += bytes([byte])
    lines += [(stream, text) for stream, text in rest.items() if text]
    return [line for line in lines if only in (None, line[0])]


@given(frames, streams)
def test_every_line_is_there_once_in_the_order_of_their_ends(said, only):
    log = Log(said)
    assert log.lines(0, 10_000, only) == (0, expected(said, only))
    assert log.index.span(only).end == len(expected(said, only))


@given(st.text("ab\n", max_size=200), st.data())
def test_any_parting_of_the_bytes_gives_the_same_lines(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    edges = [0, *cuts, len(text)]
    parts = [(1, text[begin:end].encode()) for begin, end in pairwise(edges)]
    assert Log(parts).lines(0, 1000) == Log([(1, text.encode())]).lines(0, 1000)


@given(frames, streams, st.integers(0, 30), st.integers(1, 8), st.booleans(), st.integers(1, 40))
def test_a_page_is_a_part_of_the_whole_log(said, only, first, count, back, limit):
    log, whole = Log(said), expected(said, only)
    number, lines = log.lines(first, count, only, back=back, limit=limit)
    wanted = whole[max(0, first - count) : first] if back else whole[first : first + count]
    assert lines == whole[number : number + len(lines)]
    assert lines == (wanted[len(wanted) - len(lines) :] if back else wanted[: len(lines)])
    assert len(lines) == len(wanted) or 1 <= len(lines) < len(wanted)


coloured = st.text("ab\n\x1b[m3", max_size=12).map(str.encode)


@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 2, NOTE]), coloured), max_size=20),
    streams,
    st.integers(0, 30),
    st.booleans(),
    st.text("abAB", min_size=1, max_size=3),
)
@settings(max_examples=300)
def test_a_search_finds_the_next_line_that_shows_the_words_in_either_direction(said, only, first, back, words):
    whole = expected(said, only)
    matches = [at for at, (_, line) in enumerate(whole) if words.lower() in plain(line.decode()).lower()]
    first = min(first, max(0, len(whole) - 1))
    wanted = max((at for at in matches if at <= first), default=None) if back else next(
        (at for at in matches if at >= first), None
    )  # fmt: skip
    assert Log(said).find(words, first, back=back, only=only) == wanted
    assert Log(said).matches(words, only=only) == matches


@given(frames, st.integers(0, 300))
def test_what_is_forgotten_is_not_read_again_and_the_rest_keeps_its_numbers(said, gone):
    log, whole = Log(said), expected(said, None)
    log.index.forget(gone)
    first = log.index.span().first
    number, lines = log.lines(0, 1000)
    assert number == first
    assert len(lines) == len(whole) - first
    for (stream, line), (of, all_of_it) in zip(lines, whole[first:], strict=True):
        assert (stream, line) == (of, all_of_it[len(all_of_it) - len(line) :])  # its beginning may be gone


def test_colours_within_a_word_do_not_hide_it_and_bytes_of_colours_are_not_found():
    log = Log([(1, b"\x1b[31mlo\x1b[0mss\n\x1b[38;5;31mx\n")])
    assert (log.find("LOSS", 0), log.find("31", 0)) == (0, None)


def test_what_was_written_over_is_not_found():
    assert Log([(1, b"10%\r50%\r99%\n")]).find("50%", 0) is None


def test_letters_of_other_alphabets_are_found_in_upper_and_lower_case():
    log = Log([(1, "größe\nGRÖSSER\n".encode())])
    assert (log.find("GRÖ", 0), log.find("grö", 1)) == (0, 1)


def test_of_a_line_that_is_cut_the_beginning_is_shown_and_of_a_progress_bar_the_end():
    log = Log([(1, b"abcdefgh\n10%\r20%\r30%\n")])
    assert log.lines(0, 2, cut=5)[1] == [(1, b"abcde"), (1, b"30%")]


def test_a_line_longer_than_the_limit_keeps_its_end(monkeypatch):
    monkeypatch.setattr(log_index, "LINE", 8)
    assert Log([(1, b"abc" * 20), (1, b"end\nnext\n")]).lines(0, 2)[1] == [(1, b"bcabcend"), (1, b"next")]


def test_words_are_found_with_any_number_of_sequences_between_their_letters():
    log = Log([(1, b"first\nlo" + b"\x1b[0m" * 100 + b"ss\n")])
    assert log.find("loss", 0) == 1


def test_a_line_without_an_end_takes_no_memory_in_each_block():
    log = Log([(1, b"50%\r" * 10) for _ in range(100)])
    assert len({id(begun) for begun, _ in log.index._carried[1:]}) == 1
