"""Tables: fitted to a terminal without cutting what matters; whole lines to a pipe."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from agentless.cli.output import has_colours, say
from agentless.model.text import printable

_GAP = "  "
_LEAST = 8  # the least width of a column that is cut
_BESIDE = 40  # the least width for a text that wraps beside the other columns, not below them
_PADDED = 60  # the width of a flexible column in a pipe; a longer text shifts only its own line
_COLOURS = {
    "running": 32, "completed": 32, "free": 32, "online": 32, "ok": 32,
    "assigning": 33, "paused": 33, "pending": 33, "blocked": 33, "degraded": 33, "stopped": 33, "drained": 33,
    "preempted": 33, "incomplete": 33, "stopping": 33, "submitted": 33,
    "failed": 31, "killed": 31, "killed_oom": 31, "timeout": 31, "lost": 31, "offline": 31, "unknown": 31, "FAIL": 31,
    "unhealthy": 31, "foreign": 35, "allocated": 36, "excluded": 90, "partitioned": 90,
}  # fmt: skip
"""ANSI colours of states; each state is readable without its colour."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and its text for a row. A column without text in any row is left out.

    A `wide` one is shown with `-o wide` only. Then those with a `rank`, highest first, are left out on a terminal that
    is too narrow for all. On a narrow terminal only `flexible` columns are cut. The text of a last
    column that `wraps` goes below its row if it does not fit beside it; then the widest column takes several lines.
    """

    title: str
    text: Callable[[dict[str, Any]], str]
    right: bool = False
    flexible: bool = False
    wraps: bool = False
    wide: bool = False
    rank: int = 0


def show(columns: Sequence[Column], rows: Sequence[dict[str, Any]], *, wide: bool = False) -> None:
    """Print the rows. On a terminal no line is wider than the screen; to a pipe, or if `wide`, each row is one line.

    A `wide` table whose columns have ranks fits the terminal, too.
    """
    columns = [column for column in columns if wide or not column.wide]
    texts = [[printable(" ".join(column.text(row).split())) for row in rows] for column in columns]
    used = [(column, cells) for column, cells in zip(columns, texts, strict=True) if any(cells) or not rows]
    columns = [column for column, _ in used]
    table = list(zip(*([column.title, *cells] for column, cells in used), strict=True))
    widths = [max(map(width, cells)) for cells in zip(*table, strict=True)]
    screen = shutil.get_terminal_size().columns
    ranked = wide and any(column.rank for column in columns)
    terminal = sys.stdout.isatty() and (ranked or not wide)
    left_out: list[str] = []
    if terminal and ranked:
        kept = _most_important(columns, widths, screen)
        left_out = [column.title for at, column in enumerate(columns) if at not in kept]
        columns, widths = [columns[at] for at in kept], [widths[at] for at in kept]
        table = [tuple(row[at] for at in kept) for row in table]
    if terminal:
        widths = _fitted(columns, widths, screen)
        if not widths[-1]:
            table[0] = (*table[0][:-1], "")
    else:
        widths = [min(w, _PADDED) if c.flexible else w for c, w in zip(columns, widths, strict=True)]
    for number, row in enumerate(table):
        for line in _lines(columns, row, widths, screen) if terminal else (row,):
            cells = [_cell(*cell) for cell in zip(columns, line, widths, strict=False)]
            print(_coloured(cells, is_title=number == 0))  # noqa: T201
    if left_out:
        say(f"Not shown in {screen} columns: {', '.join(left_out)}")


def _most_important(columns: Sequence[Column], widths: Sequence[int], limit: int) -> list[int]:
    """The places of the columns to show; a last one that wraps has room below its row."""
    kept = list(range(len(columns)))

    def over() -> bool:
        shown = [widths[at] for at in kept if not columns[at].wraps]
        return sum(shown) + len(_GAP) * (len(shown) - 1) > limit

    for at in sorted((at for at in kept if columns[at].rank), key=lambda at: -columns[at].rank):
        if over():
            kept.remove(at)
    return kept


def line_of(cells: Sequence[str], widths: list[int]) -> str:
    """A line of a table whose later rows are not known yet; `widths` grow with what comes."""
    widths[:] = map(max, widths, map(width, cells))
    return _GAP.join(cell + " " * (least - width(cell)) for cell, least in zip(cells, widths, strict=True)).rstrip()


def _fitted(columns: Sequence[Column], widths: Sequence[int], limit: int) -> list[int]:
    """Widths that fit into `limit` columns; 0 for a last column whose texts all go below their rows."""
    fitted = list(widths)

    def over() -> int:
        return sum(each + len(_GAP) for each in fitted if each) - len(_GAP) - limit

    if columns[-1].wraps and over() > 0:
        left = widths[-1] - over()
        fitted[-1] = left if left >= max(_LEAST, len(columns[-1].title)) else 0
    for at, column in enumerate(columns):
        if column.flexible and over() > 0:
            fitted[at] = max(_LEAST, widths[at] - over())
    while over() > 0 and max(fitted) > 1:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _lines(
    columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], screen: int
) -> Iterator[Sequence[str]]:
    """The lines of a row on a terminal: its cells side by side, then a last one that is too long for that."""
    *cells, last = row
    beneath: list[str] = []
    if columns[-1].wraps and widths[-1] < min(_BESIDE, width(last)):
        indent = " " * min(widths[0] + len(_GAP), screen // 4)
        beneath, last = [indent + part for part in _wrapped(last, screen - len(indent))], ""
    yield from zip_longest(*map(_fit, columns, (*cells, last), widths), fillvalue="")
    for line in beneath:
        yield (line,)


def _fit(column: Column, text: str, room: int) -> list[str]:
    return [cut(text, room)] if column.flexible else _wrapped(text, room)


def cut(text: str, room: int) -> str:
    """The text, cut if it is wider than this."""
    return text if width(text) <= room else _head(text, room - 1) + "…"


def wrapped(text: str, indent: int) -> list[str]:
    """A text in lines that fit the terminal behind an indent; one line to a pipe."""
    text = printable(" ".join(text.split()))
    room = shutil.get_terminal_size().columns - indent if sys.stdout.isatty() else 0
    return _wrapped(text, max(20, room)) if room else [text]


def _wrapped(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` columns, broken between words, and within a word that is longer."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width(joined) <= room:
            lines[-1] = joined
            continue
        rest = word
        while width(rest) > room:
            lines.append(_head(rest, room))
            rest = rest[len(lines[-1]) :]
        lines.append(rest)
    return lines if lines[0] or len(lines) == 1 else lines[1:]


def _head(text: str, room: int) -> str:
    """The beginning of the text that fits into `room` columns, at least one character."""
    end, used = 0, 0
    while end < len(text) and (used := used + width(text[end])) <= room:
        end += 1
    return text[: max(1, end)]


def _cell(column: Column, text: str, room: int) -> str:
    fill = " " * (room - width(text))
    return fill + text if column.right else text + fill


def width(text: str) -> int:
    """Columns on a terminal: most East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _coloured(cells: list[str], *, is_title: bool) -> str:
    line = _GAP.join(cells).rstrip()
    if not has_colours():
        return line
    if is_title:
        return f"\033[1m{line}\033[0m"
    for at, cell in enumerate(cells[1:], 1):  # the first cell is a name, or continues a row
        word = cell.strip().partition(" ")[0]
        if colour := _COLOURS.get(word):
            coloured = cell.replace(word, f"\033[{colour}m{word}\033[0m", 1)
            return _GAP.join([*cells[:at], coloured, *cells[at + 1 :]]).rstrip()
    return line
