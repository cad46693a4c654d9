"""How the bytes of a log become lines on a screen: decoded, settled, wrapped, bounded."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from agentless.tui.data import log_text
from agentless.tui.data.log_text import LogText
from agentless.tui.widgets import log_lines
from agentless.tui.widgets.colours import COLOURS
from agentless.tui.widgets.log_lines import Log


def lines(*frames: bytes, stream: int = 1) -> list[str]:
    """What frames of one stream look like, with the line that has not ended."""
    text = LogText()
    for frame in frames:
        text.add(stream, frame)
    ended, begun = text.take()
    return [line for _, line in [*ended, *begun]]


# ---------------------------------------------------------------------------- the text


@given(st.text("aé日😀\n"), st.integers(1, 4))
def test_characters_are_whole_wherever_frames_end(text, size):
    data = text.encode() + b"."
    frames = [data[at : at + size] for at in range(0, len(data), size)]
    assert lines(*frames) == (text + ".").split("\n")


def test_each_stream_has_its_own_half_of_a_character():
    text = LogText()
    for stream, data in [(1, b"\xc3"), (2, b"\xe2\x82"), (1, b"\xa9\n"), (2, b"\xac\n")]:
        text.add(stream, data)
    assert text.take() == ([(1, "é"), (2, "€")], [])


@pytest.mark.parametrize(
    "said",
    [
        b"\x1b[1;38;5;200mloss\x1b[0m",
        b"\x1b]0;a title\x07loss",
        b"\x1b]8;;http://x\x1b\\loss\x1b]8;;\x1b\\",
        b"\x1b(Bloss\x1b[K",
        b"10%\r50%\rloss",
        b"10%\rloss\r",
    ],
)
def test_a_line_is_shown_as_a_terminal_would_leave_it(said):
    assert lines(said + b"\n", b"next") == ["loss", "next"]


def test_a_cut_line_says_so(monkeypatch):
    monkeypatch.setattr(log_text, "LINE", 5)
    assert lines(b"1234567\n", b"12345\n", b"abc", b"defgh") == ["…34567", "12345", "…defgh"]


def test_who_reads_waits_for_the_screen_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(log_text, "WAITING", 100)
    text, came = LogText(), []
    reader = Thread(target=lambda: [text.add(1, b"%d\n" % n) for n in range(1000)])
    reader.start()
    while reader.is_alive() or not came or came[-1] != "999":
        if took := text.take():
            assert len(took[0]) <= 3
            came += [line for _, line in took[0]]
    assert came == [str(n) for n in range(1000)]


def test_who_reads_is_let_go_when_the_screen_is_left(monkeypatch):
    monkeypatch.setattr(log_text, "WAITING", 1)
    text = LogText()
    reader = Thread(target=lambda: [text.add(1, b"x\n") for _ in range(10)])
    reader.start()
    text.close()
    reader.join(30)
    assert not reader.is_alive()


# -------------------------------------------------------------------------- the screen


class Shown(App[None]):
    """A log, and nothing else."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return COLOURS

    def compose(self) -> ComposeResult:
        yield Log()

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without the scrollbar."""
        return [strip.text[:-1].rstrip() for strip in self.screen._compositor.render_strips()]


def numbered(first: int, end: int) -> list[tuple[int, str]]:
    return [(1, f"line {n}") for n in range(first, end)]


async def test_a_line_that_goes_on_is_shown_once():
    app = Shown()
    async with app.run_test(size=(20, 5)) as pilot:
        log = app.query_one(Log)
        log.add([(1, "one")], [(1, "tw")])
        log.add([(1, "two"), (2, "three")], [(1, "fo"), (2, "fi")])
        await pilot.pause()
        assert app.lines == ["one", "two", "three", "fo", "fi"]


async def test_the_text_stays_under_who_stands_still_while_lines_fall_out_at_the_begin(monkeypatch):
    monkeypatch.setattr(log_lines, "KEPT", 100)
    app = Shown()
    async with app.run_test(size=(20, 5)) as pilot:
        log = app.query_one(Log)
        log.add(numbered(0, 100), [])
        await pilot.pause()
        await pilot.press("pageup")
        before = app.lines
        log.add(numbered(100, 150), [(1, "more")])
        await pilot.pause()
        assert app.lines == before == [f"line {n}" for n in range(91, 96)]


async def test_who_follows_sees_the_end(monkeypatch):
    monkeypatch.setattr(log_lines, "KEPT", 100)
    app = Shown()
    async with app.run_test(size=(20, 3)) as pilot:
        for first in range(0, 1000, 50):
            app.query_one(Log).add(numbered(first, first + 50), [])
        await pilot.pause()
        assert app.lines == ["line 997", "line 998", "line 999"]


async def test_what_is_kept_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(log_lines, "KEPT_BYTES", 10_000)
    app = Shown()
    async with app.run_test(size=(20, 3)):
        log = app.query_one(Log)
        log.add([(1, "x" * 1000) for _ in range(100)], [])
        assert 5 <= log.length() < 10


@pytest.mark.parametrize("text", ["0123456789" * 5, "日本語" * 9, "a日" * 12])
async def test_a_wrapped_line_fills_its_rows_and_loses_nothing(text):
    app = Shown()
    async with app.run_test(size=(12, 8)) as pilot:
        log = app.query_one(Log)
        log.wraps = True
        log.add([(1, text)], [])
        await pilot.pause()
        rows = [row for row in app.lines if row]
        assert "".join(rows) == text
        assert all(10 <= cell_len(row) <= 11 for row in rows[:-1])


async def test_a_wrapped_log_is_laid_out_again_for_another_width():
    app = Shown()
    async with app.run_test(size=(12, 8)) as pilot:
        log = app.query_one(Log)
        log.wraps = True
        log.add([(1, "0123456789" * 3)], [])
        await pilot.resize_terminal(31, 8)
        await pilot.pause()
        assert app.lines[:2] == ["0123456789" * 3, ""]


async def test_who_stands_still_sees_the_same_line_when_it_is_wrapped():
    app = Shown()
    async with app.run_test(size=(12, 4)) as pilot:
        log = app.query_one(Log)
        log.add([(1, f"{n} " + "x" * 20) for n in range(50)], [])
        await pilot.pause()
        await pilot.press("pageup")
        before = app.lines[0]
        log.wraps = True
        log.lay_out()
        await pilot.pause()
        assert app.lines[0].split()[0] == before.split()[0]
