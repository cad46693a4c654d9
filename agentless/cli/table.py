"""Tables: fitted to the terminal, whole lines to a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_GAP = "  "
_COLOURS = {
    "running": 32, "completed": 32, "free": 32, "online": 32, "ok": 32,
    "assigning": 33, "paused": 33, "pending": 33, "degraded": 33, "stopped": 33, "drained": 33,
    "failed": 31, "killed": 31, "killed_oom": 31, "timeout": 31, "lost": 31, "offline": 31, "unknown": 31, "FAIL": 31,
    "foreign": 35, "allocated": 36, "excluded": 90,
}  # fmt: skip
"""ANSI colours of the words that states are: each is readable without its colour."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and its text for a row. The `flexible` one, the last, is cut when the terminal is narrow."""

    title: str
    text: Callable[[dict[str, Any]], str]
    right: bool = False
    flexible: bool = False


def show(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows, one line each. On a terminal no line is longer than it is wide; to a pipe nothing is cut."""
    titles = [column.title for column in columns]
    lines = [titles, *([" ".join(column.text(row).split()) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, line in enumerate(lines):
        cells = [_padded(*cell) for cell in zip(columns, line, widths, strict=True)]
        if room is not None:
            cells = _cut(columns, cells, room)
        print(_coloured(_GAP.join(cells).rstrip(), cells, is_title=number == 0))


def _padded(column: Column, text: str, width: int) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def _cut(columns: Sequence[Column], cells: list[str], room: int) -> list[str]:
    fixed = sum(len(cell) + len(_GAP) for column, cell in zip(columns, cells, strict=True) if not column.flexible)
    left = max(8, room - fixed)
    return [
        cell.rstrip()[: left - 1] + "…" if column.flexible and len(cell.rstrip()) > left else cell
        for column, cell in zip(columns, cells, strict=True)
    ]


def _coloured(line: str, cells: list[str], *, is_title: bool) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return line
    if is_title:
        return f"\033[1m{line}\033[0m"
    for cell in cells:
        word = cell.strip().partition(" ")[0]
        if colour := _COLOURS.get(word):
            return line.replace(word, f"\033[{colour}m{word}\033[0m", 1)
    return line


def or_dash(value: object, unit: str = "") -> str:
    """The value with its unit, `-` when it is not known."""
    return "-" if value is None else f"{value}{unit}"
