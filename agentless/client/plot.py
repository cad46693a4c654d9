"""Plots in braille dots with axes, for screens and commands.

A line is made of texts, each with the name of its style: `axis`, `grid`, or that of a series. plotext would do the same
in 75 ms for one curve of 260 points and in a second for eight; here it is one and eight milliseconds, so that a screen
can draw anew each second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

Text = tuple[str, str]

_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""The dots of a braille pattern, from the lowest row."""
_BETWEEN = 16
"""The least columns between two times on the axis."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: evenly spaced values, None where nothing is known. `style` names its colour."""

    name: str
    values: Sequence[float | None]
    style: str


def plot(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    top: float,
    words: Callable[[float], str],
    times: Callable[[float], str],
    filled: bool = False,
    cursor: int | None = None,
) -> list[list[Text]]:
    """The lines of a plot, `height` of them with the axis of times, from 0 to `top`.

    `words` writes a value, `times` a place from 0 (the left edge) to 1. `filled` fills the space below each curve.
    `cursor` is a column of the plot area that is marked.
    """
    rows = max(1, height - 1)
    labels = _labels(rows, top, words)
    margin = max(map(len, labels.values()), default=0) + 1
    columns = max(1, width - margin)
    gridded = {row for row in labels if row < rows - 1}
    lines = []
    for row, line in enumerate(dotted(series, columns, rows, top, filled=filled, grid=gridded, cursor=cursor)):
        edge = "┤" if row in labels else "│"
        lines.append([(labels.get(row, "").rjust(margin - 1) + edge, "axis"), *line])
    return [*lines, [(_axis(columns, margin, times), "axis")]]


def dotted(
    series: Sequence[Series],
    columns: int,
    rows: int,
    top: float,
    *,
    filled: bool = False,
    grid: Collection[int] = (),
    cursor: int | None = None,
) -> list[list[Text]]:
    """Only the curves, as `rows` lines; those in `grid` are dotted."""
    dots = [[0] * columns for _ in range(rows)]
    styles = [[""] * columns for _ in range(rows)]
    for each in series:
        _draw(each, dots, styles, top, filled=filled)
    return [
        _row(bits, names, is_grid=row in grid, cursor=cursor)
        for row, (bits, names) in enumerate(zip(dots, styles, strict=True))
    ]


def spread(values: Sequence[float | None], count: int) -> list[float | None]:
    """The values as `count` means, of which some may repeat."""
    found: list[float | None] = []
    for at in range(count):
        first = at * len(values) // count
        part = [value for value in values[first : max(first + 1, (at + 1) * len(values) // count)] if value is not None]
        found.append(sum(part) / len(part) if part else None)
    return found


# ---------------------------------------------------------------------- inside


def _labels(rows: int, top: float, words: Callable[[float], str]) -> dict[int, str]:
    """The values on the axis, by row: the top, the bottom, and as many between as are readable."""
    if rows < 2:
        return {0: words(top)}
    parts = next((parts for parts in (4, 2) if (rows - 1) % parts == 0 and (rows - 1) // parts >= 2), 1)
    if parts == 1 and rows >= 5:
        parts = 2
    return {round((rows - 1) * (parts - part) / parts): words(top * part / parts) for part in range(parts + 1)}


def _draw(series: Series, dots: list[list[int]], styles: list[list[str]], top: float, *, filled: bool) -> None:
    rows, columns = len(dots), len(dots[0])
    before: int | None = None
    for x, value in enumerate(spread(series.values, columns * 2)):
        if value is None or top <= 0:
            before = None
            continue
        level = round(max(0.0, min(1.0, value / top)) * (rows * 4 - 1))
        first = 0 if filled else level if before is None else min(level, before + (before < level))
        last = level if filled or before is None else max(level, before - (before > level))
        for y in range(first, last + 1):
            dots[rows - 1 - y // 4][x // 2] |= _BITS[y % 4][x % 2]
            styles[rows - 1 - y // 4][x // 2] = series.style
        before = level


def _row(dots: list[int], styles: list[str], *, is_grid: bool, cursor: int | None) -> list[Text]:
    """A line of the plot area, as few texts as possible."""
    cells = [
        (chr(0x2800 + bits), style) if bits else ("·" if is_grid and x % 2 else " ", "grid")
        for x, (bits, style) in enumerate(zip(dots, styles, strict=True))
    ]
    if cursor is not None and cursor < len(cells):
        cells[cursor] = (cells[cursor][0] if dots[cursor] else "│", "cursor")
    return [("".join(text for text, _ in alike), style) for style, alike in groupby(cells, key=lambda cell: cell[1])]


def _axis(columns: int, margin: int, times: Callable[[float], str]) -> str:
    """The times below the plot, the first at its left edge and the last at its right edge."""
    parts = max(1, min(6, columns // _BETWEEN))
    text = [" "] * (margin + columns)
    end = -1
    for part in range(parts + 1):
        word = times(part / parts)
        at = margin + round((columns - 1) * part / parts) - (0 if not part else len(word) // 2)
        at = max(margin - 1 if not part else 0, min(at, margin + columns - len(word)))
        if at > end:
            text[at : at + len(word)] = word
            end = at + len(word)
    return "".join(text)[: margin + columns]
