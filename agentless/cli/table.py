"""Tables: fitted to the terminal, whole lines to a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_STYLES = {
    "running": "green", "completed": "green", "free": "green", "online": "green",
    "assigning": "yellow", "paused": "yellow", "pending": "yellow", "degraded": "yellow", "stopped": "yellow",
    "failed": "red", "killed": "red", "killed_oom": "red", "timeout": "red", "lost": "red", "offline": "red",
    "foreign": "magenta", "unknown": "red", "allocated": "cyan", "excluded": "bright_black",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and its text for a row. The `flexible` one gives way when the terminal is narrow."""

    title: str
    text: Callable[[dict[str, Any]], str]
    right: bool = False
    flexible: bool = False


def show(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows. On a terminal one line each, cut to its width; to a pipe nothing is cut."""
    cells = [[" ".join(column.text(row).split()) for column in columns] for row in rows]
    if sys.stdout.isatty():
        _to_terminal(columns, cells)
        return
    widths = [max(len(line[i]) for line in [[c.title for c in columns], *cells]) for i in range(len(columns))]
    for line in [[c.title for c in columns], *cells]:
        padded = [
            text.rjust(width) if column.right else text.ljust(width)
            for column, text, width in zip(columns, line, widths, strict=True)
        ]
        print("  ".join(padded).rstrip())


def _to_terminal(columns: Sequence[Column], cells: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if column.flexible else None,
            min_width=None
            if column.flexible
            else max([len(column.title), *(len(line[columns.index(column)]) for line in cells)]),
        )
    for line in cells:
        table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in line))
    Console(highlight=False).print(table)


def or_dash(value: object, unit: str = "") -> str:
    """The value with its unit, `-` when it is not known."""
    return "-" if value is None else f"{value}{unit}"
