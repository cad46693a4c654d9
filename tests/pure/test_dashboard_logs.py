"""A log on the screen: of any length, only what is in view is loaded."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from agentless.formats.frames import NOTE
from agentless.formats.log_index import Part, Span
from agentless.tui.data import log_source
from agentless.tui.data.log_source import SpooledLog, last_of
from agentless.tui.widgets import log_lines
from agentless.tui.widgets.colours import COLOURS
from agentless.tui.widgets.lines import wrapped
from agentless.tui.widgets.log_lines import Log
from tests.pauses import pauses


class Shown(App[None]):
    """A log, and nothing else."""

    def __init__(self, *said: bytes, **more: object) -> None:
        super().__init__()
        self.spool = SpooledLog()
        self.more = more
        self.asked: list[Part] = []
        lines = self.spool.lines
        self.spool.lines = lambda part: (self.asked.append(part), lines(part))[1]
        for data in said:
            self.spool.add(1, data)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return COLOURS

    def compose(self) -> ComposeResult:
        yield Log()

    def on_mount(self) -> None:
        for name, value in self.more.items():
            setattr(self.log_lines, name, value)
        self.call_after_refresh(self.log_lines.show, self.spool)

    @property
    def log_lines(self) -> Log:
        return self.query_one(Log)

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without the scrollbar."""
        return [strip.text[:-1].rstrip() for strip in self.screen._compositor.render_strips()]

    async def see(self, *lines: str) -> None:
        """Wait until the screen begins with these lines."""
        try:
            async with asyncio.timeout(30):
                pause = pauses()
                while self.lines[: len(lines)] != list(lines):  # noqa: ASYNC110 - it is drawn by many
                    await asyncio.sleep(next(pause))
        except TimeoutError:
            raise AssertionError(f"{lines} is not to be seen in {self.lines}") from None

    def add(self, data: bytes, stream: int = 1) -> None:
        """The task says more."""
        self.spool.add(stream, data)
        self.log_lines.update()


def numbered(end: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(end))


async def test_a_line_that_goes_on_is_shown_once():
    app = Shown(b"one\ntw")
    async with app.run_test(size=(20, 5)):
        await app.see("one", "tw", "")
        app.add(b"o\nfo")
        app.add(b"three\nfi", 2)
        await app.see("one", "two", "three", "fo", "fi")


async def test_the_text_stays_under_who_stands_still_while_more_comes():
    app = Shown(numbered(100))
    async with app.run_test(size=(20, 5)) as pilot:
        await app.see("line 95")
        await pilot.press("pageup")
        await app.see(*(f"line {n}" for n in range(91, 96)))
        app.add(numbered(50))
        await pilot.pause()
        await app.see(*(f"line {n}" for n in range(91, 96)))


async def test_who_follows_sees_the_end():
    app = Shown()
    async with app.run_test(size=(20, 3)):
        for first in range(0, 1000, 50):
            app.add(b"".join(b"line %d\n" % n for n in range(first, first + 50)))
        app.log_lines.update()
        await app.see("line 997", "line 998", "line 999")


async def test_of_a_long_log_only_the_lines_around_the_view_are_read():
    app = Shown(numbered(100_000))
    async with app.run_test(size=(20, 10)) as pilot:
        await app.see("line 99990")
        await pilot.press("g")
        await app.see("line 0")
        app.log_lines.go_to(50_000)
        await app.see("line 49997")
        assert sum(part.count for part in app.asked) < 100
        assert len(app.log_lines._lines) < 100


async def test_what_is_kept_in_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(log_lines, "KEPT", 5_000)
    app = Shown(numbered(5000))
    async with app.run_test(size=(20, 3)) as pilot:
        await app.see("line 4997")
        for at in range(12):
            app.log_lines.go_to(at * 400)
            await pilot.pause()
        await app.see(f"line {11 * 400 - 1}")
        assert app.log_lines._held <= 5_000


@pytest.mark.parametrize("text", ["0123456789" * 5, "日本語" * 9, "a日" * 12])
async def test_a_wrapped_line_fills_its_rows_and_loses_nothing(text):
    app = Shown(text.encode(), wraps=True)
    async with app.run_test(size=(12, 8)):
        await app.see(next(wrapped([(text, "")], 11))[0][0])
        rows = [row for row in app.lines if row]
        assert "".join(rows) == text
        assert all(10 <= cell_len(row) <= 11 for row in rows[:-1])


@given(st.lists(st.tuples(st.text("ab日é", max_size=9), st.sampled_from(["", "x"])), max_size=6), st.integers(2, 9))
def test_wrapped_pieces_keep_text_and_styles_and_no_row_is_too_wide(pieces, width):
    rows = list(wrapped(pieces, width))
    assert [(c, style) for row in rows for text, style in row for c in text] == [
        (c, style) for text, style in pieces for c in text
    ]
    assert all(sum(cell_len(text) for text, _ in row) <= width for row in rows)


async def test_a_wrapped_log_is_laid_out_again_for_another_width():
    app = Shown(b"0123456789" * 3, wraps=True)
    async with app.run_test(size=(12, 8)) as pilot:
        await app.see("01234567890", "12345678901")
        await pilot.resize_terminal(31, 8)
        await app.see("0123456789" * 3, "")


@pytest.mark.parametrize("key", ["up", "pageup"])
async def test_a_wrapped_log_is_scrolled_by_rows_of_the_screen(key):
    text = b"".join(b"%d %s\n" % (n, b"x" * 19) for n in range(50))
    app = Shown(text, wraps=True)
    async with app.run_test(size=(12, 4)) as pilot:
        await app.see("48 xxxxxxxx", "x" * 11, "49 xxxxxxxx")
        for _ in range(3 if key == "up" else 1):
            await pilot.press(key)
            await pilot.pause()
        await app.see("x" * 11, "47 xxxxxxxx")
        for _ in range(3 if key == "up" else 1):
            await pilot.press({"up": "down", "pageup": "pagedown"}[key])
            await pilot.pause()
        await app.see("48 xxxxxxxx")
        assert app.log_lines.follows


async def test_columns_beyond_the_edge_are_reached_by_the_arrow_keys():
    app = Shown(b"0123456789abcdefghijklmnopqrstuvwxyz\nshort\n")
    async with app.run_test(size=(12, 4)) as pilot:
        await app.see("0123456789…", "short")
        await pilot.press("right")
        await app.see("89abcdefgh…", "")
        await pilot.press("left")
        await app.see("0123456789…", "short")


async def test_a_match_far_to_the_right_of_a_line_is_brought_into_view():
    app = Shown(b"x" * 5000 + b"here" + b"x" * 5000 + b"\n", sought="here")
    async with app.run_test(size=(31, 5)):
        await app.see("x" * 29 + "…")
        app.log_lines.go_to(0, 5000)
        async with asyncio.timeout(30):
            while "here" not in "".join(app.lines):  # noqa: ASYNC110 - it is drawn by many
                await asyncio.sleep(0.02)
        assert app.log_lines.wraps


async def test_colours_of_the_task_are_shown():
    app = Shown(b"\x1b[1;31mred\x1b[0m plain \x1b[38;2;1;2;3mrgb\n")
    async with app.run_test(size=(30, 3)):
        await app.see("red plain rgb")
        strip = app.screen._compositor.render_strips()[0]
        looks = {segment.text.strip(): segment.style for segment in strip._segments}
        assert looks["red"].bold
        assert looks["red"].color != looks["plain"].color
        assert looks["rgb"].color.triplet == (1, 2, 3)


async def test_words_that_are_sought_are_marked_also_across_colours():
    app = Shown(b"the \x1b[31mlo\x1b[0mss\n", sought="LOSS")
    async with app.run_test(size=(30, 3)):
        await app.see("the loss")
        style = app.log_lines.get_component_rich_style("matched").bgcolor
        segments = app.screen._compositor.render_strips()[0]._segments
        assert "".join(each.text for each in segments if each.style.bgcolor == style) == "loss"


def test_a_line_of_marks_alone_is_bounded_and_marked_at_once():
    line = log_lines._line(1, ("a" + "\u0301" * 100_000 + "b\n").encode(), Span(0, 1, 1))
    assert sum(len(text) for text, _ in line.pieces) < 20
    found = log_lines._marked([("ab", "x"), ("ab" * 50_000, "")], "a", "found")  # its square would take minutes
    assert [style for _, style in found[:4]] == ["found", "x", "found", ""]
    assert "".join(text for text, _ in found) == "ab" * 50_001
    assert log_lines._with_few_marks("e\u0301 नि 👩‍🚀") == "e\u0301 नि 👩‍🚀"


# -------------------------------------------------------------------------- the spool


def test_who_shows_a_log_does_not_wait_for_a_search():
    spool = SpooledLog()
    spool.add(1, b"one\ntwo")
    busy, done = Event(), Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: (spool._lock.acquire(), busy.set(), done.wait(10), spool._lock.release()))
        busy.wait(30)
        assert spool.span(None) == Span(0, 1, 2)
        assert spool.line_at(0.0, None) == 2
        assert not spool._lock.acquire(blocking=False), "the search is over"
        done.set()
    spool.close()


def test_a_spool_keeps_the_end_of_what_it_was_given(monkeypatch):
    monkeypatch.setattr(log_source, "SPOOL", 1 << 20)
    spool = SpooledLog()
    for n in range(40_000):
        spool.add(1, b"%07d %s\n" % (n, b"x" * 40))
    span = spool.span(None)
    assert span.end == 40_000
    assert 10_000 < span.end - span.first < 22_000
    first, lines = spool.lines(Part(0, 3))
    assert first == span.first
    assert [int(line[:7]) for _, line in lines[1:]] == [first + 1, first + 2]
    assert spool.find("0039999 ", 0, back=False, only=None).line == 39_999
    spool.close()


@given(st.lists(st.binary(max_size=200_000), max_size=4))
@settings(max_examples=20)
def test_a_spool_gives_back_what_it_was_given(said):
    spool = SpooledLog()
    for data in said:
        spool.add(1, data)
    whole = b"".join(said).split(b"\n")
    assert [line for _, line in spool.lines(Part(0, 10**9, limit=10**9))[1]] == whole[: len(whole) - (not whole[-1])]
    spool.close()


def test_a_note_is_a_line_without_controls():
    spool = SpooledLog()
    spool.add(NOTE, b"left\x1b[2J out")
    assert spool.lines(Part(0, 1))[1] == [(NOTE, "left�[2J out".encode())]
    spool.close()


def test_the_line_of_a_time_is_known_from_the_positions_that_came():
    spool = SpooledLog()
    for minute in range(10):
        spool.now_at(f'["t1",[0,0],[["2026-11-22T08:{minute:02}:00.000000000Z",5],null,null]]')
        spool.add(1, b"a line\n" * 100)
    assert spool.has_times
    at = 1795334400.0 + 5 * 60  # 2026-11-22T08:05Z
    assert spool.line_at(at, None) == 500
    assert spool.line_at(at + 1e6, None) == 1000
    spool.close()


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=9)), max_size=6), st.integers(1, 20))
def test_of_an_output_of_any_length_the_end_is_kept(said, most):
    kept = last_of(iter(said), most)
    assert b"".join(data for _, data in kept) == b"".join(data for _, data in said)[-most:]
    streams = [stream for stream, data in said for _ in data]
    assert [stream for stream, data in kept for _ in data] == streams[-most:]
