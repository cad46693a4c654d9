"""The dashboard on terminals with few colours, or none: everything is to be seen, and no state is its colour alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import combinations

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from agentless import paths
from agentless.client.panels import STYLES
from agentless.tui.data.log_source import SpooledLog
from agentless.tui.screens.overview.use import Use
from agentless.tui.widgets import look
from agentless.tui.widgets.colours import CYCLE, THEMES
from agentless.tui.widgets.lines import Lines
from agentless.tui.widgets.log_lines import Log
from tests.pure.test_dashboard_views import RECORDED, RUNS, alone, over, tasks  # noqa: F401 - a fixture for all

KINDS = ("good", "warn", "bad", "odd", "held")


def remember(theme: str) -> None:
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    (paths.config_dir() / "theme").write_text(theme + "\n")


def remembered() -> str:
    return (paths.config_dir() / "theme").read_text().strip()


def said(eyes) -> str:
    """What was said last."""
    return "\n".join(f"{note.title}: {note.message}" for note in list(eyes.app._notifications)[-1:])


def segments(eyes) -> list:
    """All that is painted, with its style."""
    return [each for strip in eyes.app.screen._compositor.render_strips() for each in strip if each.text.strip()]


@pytest.mark.parametrize(
    "theme", [CYCLE[0], *(pytest.param(each, marks=pytest.mark.slow) for each in (*CYCLE[1:], "nord"))]
)
async def test_without_colours_everything_has_the_terminals_own(monkeypatch, theme):
    monkeypatch.setenv("NO_COLOR", "1")
    remember(theme)
    async with over(RECORDED, (80, 24)) as eyes:
        for keys in ("1", "4", "4T", "n", ":", "4l"):
            await eyes.press(*keys)
            await eyes.pilot.pause()
            colours = {c for each in segments(eyes) if each.style for c in (each.style.color, each.style.bgcolor)}
            assert all(colour is None or colour.is_default for colour in colours), keys
            while len(eyes.app.screen_stack) > 1:
                await eyes.press("escape")


async def test_without_colours_what_is_chosen_is_reversed_and_curves_have_letters(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with over(RECORDED, (160, 50)) as eyes:
        for use in eyes.app.query(Use):
            use.show(([20.0] * 9, [80.0] * 9))
        await eyes.see("━u utilization", "━m memory")
        assert re.findall(r"[⠀-⣿] ([um])\b", eyes.text) == ["m", "u"]
        await eyes.press("4")
        await eyes.pilot.pause()
        reversed_ = "".join(each.text for each in segments(eyes) if each.style.reverse)
        assert eyes.app.target.task["id"] in reversed_
        assert reversed_.count("running") == 1


async def test_without_colours_none_can_be_chosen_and_what_was_chosen_stays(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    remember("nord")
    async with over(RECORDED) as eyes:
        await eyes.press("c")
        await eyes.see(lambda: "Colors are off" in said(eyes))
    assert remembered() == "nord"


@pytest.mark.parametrize("chosen", ["textual-dark", "ansi-light"])
async def test_a_terminal_with_16_colours_shows_its_own_whatever_was_chosen_elsewhere(monkeypatch, chosen):
    monkeypatch.setenv("TERM", "linux")
    monkeypatch.delenv("COLORTERM", raising=False)
    remember(chosen)
    async with over(RECORDED) as eyes:
        assert eyes.app.current_theme.ansi
        assert all(theme.ansi for theme in eyes.app.available_themes.values())
        painted = {each.style.color for each in segments(eyes) if each.style and each.style.color}
        assert all(colour.number is None or colour.number < 16 for colour in painted)
        assert all(colour.triplet is None for colour in painted)
        await eyes.press("c", "c", "c")
        await eyes.pilot.pause()
    assert remembered() == chosen


async def test_each_kind_of_state_has_a_look_of_its_own():
    async with over(RECORDED) as eyes:
        for theme in CYCLE:
            eyes.app.theme = theme
            await eyes.pilot.pause()
            looks = {kind: eyes.app.view.map._style(kind) for kind in KINDS}
            assert [pair for pair in combinations(KINDS, 2) if looks[pair[0]] == looks[pair[1]]] == [], theme


async def test_what_waits_or_is_warm_is_not_red_and_can_be_read_on_a_white_terminal():
    red, yellow = {1, 9}, {3, 11}
    async with over(RECORDED) as eyes:
        eyes.app.theme = "ansi-light"
        await eyes.pilot.pause()
        looks = {kind: eyes.app.view.map._style(kind).color for kind in ("warn", "warm", "bad")}
    assert looks.pop("bad").number in red
    assert not {colour.number for colour in looks.values()} & (red | yellow)


async def test_each_curve_of_a_plot_has_a_colour_of_its_own():
    async with over(RECORDED) as eyes:
        for theme in CYCLE:
            eyes.app.theme = theme
            await eyes.pilot.pause()
            assert len({eyes.app.view.map._style(f"s{number}").color for number in range(STYLES)}) == STYLES, theme


def test_what_is_changed_of_textuals_themes_is_there():
    assert {theme.name for theme in THEMES} - {"high-contrast"} <= BUILTIN_THEMES.keys()


TEXTS = ("good", "warn", "bad", "odd", "held", "dim", "util", "mem", "warm", "sick", "axis", "chosen",
         *(f"{kind}{level}" for kind in ("use", "heat") for level in range(5)))  # fmt: skip


@pytest.mark.parametrize(("theme", "least"), [("high-contrast", 7.0), ("textual-dark", 4.5), ("textual-light", 4.5)])
async def test_texts_can_be_read_on_their_background(theme, least):
    """The contrast of WCAG 2: 4.5 is level AA, 7 is AAA."""
    async with over(RECORDED) as eyes:
        eyes.app.theme = theme
        await eyes.pilot.pause()
        styles = {kind: eyes.app.view.map._style(kind) for kind in TEXTS}
        pairs = {kind: [Color.from_rich_color(each) for each in (s.color, s.bgcolor)] for kind, s in styles.items()}
        cells = {"use", "heat"}
        asked = {kind: 4.5 if kind[:-1] in cells else least for kind in pairs}
        assert {kind: pair for kind, pair in pairs.items() if contrast(*pair) < asked[kind]} == {}


def contrast(one: Color, other: Color) -> float:
    def luminance(colour: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


WHETHER = [
    ({"TERM": "xterm-256color"}, True),
    ({"TERM": "linux"}, True),
    ({"TERM": "vt100"}, False),
    ({"TERM": "dumb"}, False),
    ({"TERM": "no-such-terminal"}, True),
    ({}, True),
    ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ({"TERM": "vt100", "TEXTUAL_DRIVER": "a page"}, True),
]


def test_whether_there_are_colours_is_for_the_user_and_the_terminal_to_say():
    """In a process each: terminfo is asked once in one."""
    script = (
        "import os\nfrom agentless.tui.widgets.colours import has_colours\n"
        f"for environ in {[environ for environ, _ in WHETHER]}:\n"
        "    if os.fork():\n        os.wait()\n"
        "    else:\n        os.write(1, b'%d' % has_colours(environ))\n        os._exit(0)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", script], text=True, env=os.environ)
    assert [(environ, has == "1") for (environ, _), has in zip(WHETHER, said, strict=True)] == WHETHER


async def test_without_colours_the_streams_of_a_log_are_told_apart(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with over(tasks(RUNS)) as eyes:
        await eyes.press("4", "l")
        spool = SpooledLog()
        for stream, words in enumerate((b"out\n", b"err\n", b"note"), 1):
            spool.add(stream, words)
        eyes.app.screen.query_one(Log).show(spool)
        await eyes.see("out", "err", "note")
        styles = {each.text.strip(): each.style for each in segments(eyes)}
        looks = {(bool(styles[text].bold), bool(styles[text].underline)) for text in ("out", "err", "note")}
        assert len(looks) == 3


GPU = next(gpu for gpu in RECORDED["gpus"] if gpu["state"] == "allocated")


def test_the_signs_of_gpus_tell_all_states_apart():
    signs = [look.sign({**GPU, "state": state}, silent=False) for state in look.SIGNS if state != "task"]
    unmeasured = look.sign({**GPU, "utilization_pct": None}, silent=False)
    busy = look.sign({**GPU, "utilization_pct": 95}, silent=False)
    assert len({*signs, unmeasured, busy}) == len(signs) + 2


def test_a_gpu_of_a_node_that_does_not_answer_has_the_sign_of_what_is_unknown():
    signs = {look.sign({**GPU, "state": state}, silent=True) for state in ("free", "allocated", "foreign")}
    assert signs == {look.SIGNS["unknown"]}


async def test_the_help_explains_every_sign():
    async with over(RECORDED, (120, 110)) as eyes:
        await eyes.press("question_mark")
        await eyes.see("foreign: used by a process outside agentless", "utilization unknown", "drained; reserved")


async def test_an_error_is_told_in_a_word_too():
    async with over(RECORDED) as eyes:
        eyes.app._say("no room", "error")
        await eyes.see(lambda: said(eyes) == "Error: no room")


def test_every_style_of_lines_is_defined():
    assert all(f"> .{name} " in Lines.DEFAULT_CSS for name in Lines.COMPONENT_CLASSES)
