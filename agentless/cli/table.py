"""Tables: fitted to the terminal, whole lines to a pipe."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentless.words import printable

_GAP = "  "
_LEAST = 8  # columns that the flexible one keeps
_COLOURS = {
    "running": 32, "completed": 32, "free": 32, "online": 32, "ok": 32,
    "assigning": 33, "paused": 33, "pending": 33, "degraded": 33, "stopped": 33, "drained": 33,
    "failed": 31, "killed": 31, "killed_oom": 31, "timeout": 31, "lost": 31, "offline": 31, "unknown": 31, "FAIL": 31,
    "unhealthy": 31, "foreign": 35, "allocated": 36, "excluded": 90,
}  # fmt: skip
"""ANSI colours of the words that states are: each is readable without its colour."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and its text for a row.

    On a narrow terminal the `flexible` one is cut first; the last one may go on in the next line if it `wraps`.
    """

    title: str
    text: Callable[[dict[str, Any]], str]
    right: bool = False
    flexible: bool = False
    wraps: bool = False


def show(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows, one line each. On a terminal no line is longer than it is wide; to a pipe nothing is cut."""
    titles = [column.title for column in columns]
    lines = [titles, *([printable(" ".join(column.text(row).split())) for column in columns] for row in rows)]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(columns))]
    if sys.stdout.isatty():
        widths = _fitted(columns, widths, shutil.get_terminal_size().columns)
        lines = [part for line in lines for part in _wrapped(columns[-1], line, widths[-1])]
    for number, line in enumerate(lines):
        cells = [_cell(*cell) for cell in zip(columns, line, widths, strict=True)]
        print(_coloured(cells, is_title=number == 0))


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room: the flexible column gives way, then whichever is the widest."""
    fitted = list(widths)
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    for at, column in enumerate(columns):
        if column.flexible and over > 0:
            fitted[at] = max(_LEAST, widths[at] - over)
    while sum(fitted) + len(_GAP) * (len(fitted) - 1) > room and max(fitted) > 1:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _wrapped(column: Column, line: list[str], width: int) -> list[list[str]]:
    parts = textwrap.wrap(line[-1], width) if column.wraps else []
    if len(parts) < 2:
        return [line]
    return [[*line[:-1], parts[0]], *([""] * (len(line) - 1) + [part] for part in parts[1:])]


def _cell(column: Column, text: str, width: int) -> str:
    if _width(text) > width:
        while _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    fill = " " * (width - _width(text))
    return fill + text if column.right else text + fill


def _width(text: str) -> int:
    """Columns on a terminal: those of East Asia take two for most of their characters."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _coloured(cells: list[str], *, is_title: bool) -> str:
    line = _GAP.join(cells).rstrip()
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return line
    if is_title:
        return f"\033[1m{line}\033[0m"
    for at, cell in enumerate(cells):
        word = cell.strip().partition(" ")[0]
        if colour := _COLOURS.get(word):
            coloured = cell.replace(word, f"\033[{colour}m{word}\033[0m", 1)
            return _GAP.join([*cells[:at], coloured, *cells[at + 1 :]]).rstrip()
    return line
