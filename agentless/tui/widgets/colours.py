"""Colours for every terminal: many, its own 16, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

curses: ModuleType | None
try:
    import curses
except ImportError:  # Python can be built without it
    curses = None

CYCLE = ("textual-dark", "textual-light", "high-contrast", "ansi-dark", "ansi-light")
"""The themes that a key goes through; the last two have the terminal's own 16 colours."""
TERMINAL = "ansi-dark"
"""The theme of a terminal with 16 colours or fewer."""

_ON_ANY_BACKGROUND = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "block-cursor-foreground": "ansi_default",
    "block-cursor-background": "ansi_default",
    "block-cursor-text-style": "reverse",
    "border-blurred": "ansi_default",
    "scrollbar-background": "ansi_default",
    "scrollbar-background-hover": "ansi_default",
    "scrollbar-background-active": "ansi_default",
}
"""Textual takes the terminal's black and white for these, and one of them is the terminal's background."""


_VIOLET = "#a66bff"


def _curves(*colours: str) -> dict[str, str]:
    """The colours of a plot beside those of utilization and memory, which are the first two."""
    return {f"curve-{number}": colour for number, colour in enumerate(colours, 2)}


COLOURS = {
    "utilization": "#2fc4b2",
    "memory": "#6f9fe8",
    "track": "#46505a",
    **_curves("#f0a04b", "#d879c9", "#9ccc50", "#f26d6d", "#e8d44d", "#b59bff"),
}
"""Of bars, what they leave, and curves, in themes that say nothing of them."""
_ON_WHITE = {
    "utilization": "#00665d", "memory": "#2f5fb3", "track": "#b4bec8",
    "text-success": "#1f6a37", "text-warning": "#7d4e0a",
    "block-cursor-background": "#0067b8", "block-cursor-foreground": "#ffffff",
    **_curves("#b35900", "#a3318f", "#4d7a00", "#c0262d", "#8a7000", "#6a3fd0"),
}  # fmt: skip
_ON_BLACK = {
    "footer-key-foreground": "#ffa62b", "block-cursor-background": "#0067b8", "block-cursor-foreground": "#ffffff",
}  # fmt: skip
_OF_16 = {
    "utilization": "ansi_cyan",
    "memory": "ansi_bright_blue",
    "track": "ansi_bright_black",
    **_curves("ansi_yellow", "ansi_magenta", "ansi_green", "ansi_red", "ansi_bright_cyan", "ansi_bright_magenta"),
}


def _changed(name: str, variables: dict[str, str], **colours: Any) -> Theme:
    theme = BUILTIN_THEMES[name]
    return replace(theme, variables=theme.variables | variables, **colours)


_CONTRAST = Theme(
    name="high-contrast",
    primary="#55aaff",
    secondary="#00e5ff",
    accent="#ff9dff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    success="#5dff5d",
    warning="#ffd700",
    error="#ff7070",
    dark=True,
    variables={
        "text-muted": "#d0d0d0",
        "text-disabled": "#b0b0b0",
        "block-cursor-background": "#ffff00",
        "block-cursor-foreground": "#000000",
        "footer-key-foreground": "#ffff00",
        "utilization": "#00dcb8",
        "memory": "#8fb8ff",
        "track": "#7a7a7a",
    },
)
"""Each text at least 7 to 1 on its background, as WCAG 2 asks for at level AAA."""
THEMES = (
    _changed("textual-dark", _ON_BLACK, accent=_VIOLET),
    _changed("textual-light", _ON_WHITE, accent=_VIOLET),
    # Its blue is hard to read.
    _changed("ansi-dark", _ON_ANY_BACKGROUND | _OF_16, accent="ansi_magenta", primary="ansi_cyan"),
    # Its warnings are red like errors; yellow cannot be read on white in most terminals.
    _changed(
        "ansi-light",
        _ON_ANY_BACKGROUND | _OF_16 | {"memory": "ansi_blue"},
        accent="ansi_bright_magenta",
        warning="ansi_magenta",
    ),
    _CONTRAST,
)
"""In place of Textual's own, and one more.

Textual's have the same colour for `foreign` and warnings (the first two), or for `foreign` and `free` (the third).
"""


def has_colours(environ: Mapping[str, str]) -> bool:
    """Whether to use colours: not if `NO_COLOR` is set, or the terminal has none. A browser has all."""
    if environ.get("NO_COLOR"):
        return False
    term = environ.get("TERM")
    if "TEXTUAL_DRIVER" in environ or not term or curses is None:
        return True
    try:
        curses.setupterm(term, 1)
    except curses.error:  # a terminal that this machine does not know
        return True
    return bool(curses.tigetnum("colors") >= 8)


class InFont(LineFilter):
    """A filter for a terminal whose font lacks signs: `signs` has others, by their code points."""

    def __init__(self, signs: Mapping[int, str]) -> None:
        super().__init__()
        self._signs = signs

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's
        return [Segment(text.translate(self._signs), style, control) for text, style, control in segments]


class Plain(LineFilter):
    """A filter without colours: backgrounds are reversed. Textual's NoColor loses things like scrollbars."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's
        return [Segment(text, style and _plain(style), control) for text, style, control in segments]


@lru_cache(1024)
def _plain(style: Style) -> Style:
    own = style.bgcolor is not None and not style.bgcolor.is_default
    return style.without_color + Style(reverse=True) if own else style.without_color
