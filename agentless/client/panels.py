"""Several plots over the same time, for a screen or a command: how they share the space, and their legends.

The styles of texts are those of `plot`, `s0` to `s7` of curves, `strong` of titles, and `dim`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agentless.client.plot import Frame, Series, Text, clock_ticks, framed, label_width, value_at

STYLES = 8
"""The number of styles of curves."""

_LEAST = 5
"""The least lines of a plot below its legend, with the axis of times."""
_GAP = 2
_NARROW, _WIDE = 64, 150
"""The least columns for two plots, and for three, beside each other."""
_NOW = 7
"""Columns of the axis of times that belong to its end."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: what is written at its end, its name in the legend, and evenly spaced values."""

    mark: str
    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves from 0 to `top`. `words` writes a value."""

    title: str
    curves: Sequence[Curve]
    top: float
    words: Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Shown:
    """Plots of the time from `begin` to `end`, in Unix seconds. `is_live`: it ends now."""

    begin: float
    end: float
    plots: Sequence[Plot]
    is_live: bool = True

    def column(self, at: float | None, columns: int) -> int | None:
        """The column of a moment in a plot that has so many; None if it is outside."""
        if at is None or not self.begin <= at < self.end:
            return None
        return min(columns - 1, int((at - self.begin) / (self.end - self.begin) * columns))

    def moment(self, column: int, columns: int) -> float:
        """The moment in the middle of a column."""
        return self.begin + (column + 0.5) / columns * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Area:
    """Where the curves of a plot are in the drawing."""

    x: int
    y: int
    columns: int
    rows: int


def least_height(shown: Shown, width: int) -> int:
    """The lines that these plots need at this width."""
    return sum(_legend_height(row, width) + _LEAST for row in _rows(shown.plots, width))


def drawn(shown: Shown, width: int, height: int, at: float | None = None) -> tuple[list[list[Text]], list[Area]]:
    """The lines of all plots, and where each is; the legends have the values `at` a moment, or the last ones.

    The lines are as many as `height`, or as many as they need at least. Each is `width` columns wide.
    """
    rows = _rows(shown.plots, width)
    spare = max(0, height - least_height(shown, width))
    lines: list[list[Text]] = []
    areas: list[Area] = []
    for number, row in enumerate(rows):
        more = (spare + len(rows) - 1 - number) // len(rows)
        texts, found = _row(shown, row, width, _legend_height(row, width) + _LEAST + more, at)
        areas += [Area(area.x, area.y + len(lines), area.columns, area.rows) for area in found]
        lines += texts
    return lines, areas


# ---------------------------------------------------------------------- inside


def _rows(plots: Sequence[Plot], width: int) -> list[Sequence[Plot]]:
    """The plots by rows: as many beside each other as are readable, and fewer in the first row if some are over."""
    beside = 1 if width < _NARROW else 2 if width < _WIDE else 3
    first = len(plots) % beside or beside
    return [plots[:first], *(plots[at : at + beside] for at in range(first, len(plots), beside))] if plots else []


def _widths(count: int, width: int) -> list[int]:
    room = width - _GAP * (count - 1)
    return [room // count + (number < room % count) for number in range(count)]


def _legend_height(row: Sequence[Plot], width: int) -> int:
    widths = _widths(len(row), width)
    return max(len(_legend(plot, wide, None)) for plot, wide in zip(row, widths, strict=True))


def _row(
    shown: Shown, row: Sequence[Plot], width: int, height: int, at: float | None
) -> tuple[list[list[Text]], list[Area]]:
    """Plots beside each other: their lines, and where they are."""
    legend = _legend_height(row, width)
    lines: list[list[Text]] = [[] for _ in range(height)]
    areas, x = [], 0
    left = max(label_width(height - legend, plot.top, plot.words) for plot in shown.plots)
    right = max(_right(plot) for plot in shown.plots)
    for plot, wide in zip(row, _widths(len(row), width), strict=True):
        frame = Frame(left, right, _ticks(shown, wide - left - right))
        columns = frame.columns(wide)
        cursor = shown.column(at, columns)
        series = [
            Series(each.name, each.values, f"s{number % STYLES}", each.mark if len(plot.curves) > 1 else "")
            for number, each in enumerate(plot.curves)
        ]
        texts = _legend(plot, wide, None if cursor is None else (cursor, columns))
        texts += [[(" " * wide, "")]] * (legend - len(texts))
        texts += framed(series, wide, height - legend, frame, top=plot.top, words=plot.words, cursor=cursor)
        for y, text in enumerate(texts):
            lines[y] += [(" " * _GAP, ""), *text] if x else text
        areas.append(Area(x + frame.left, legend, columns, height - legend - 1))
        x += wide + _GAP
    return lines, areas


def _right(plot: Plot) -> int:
    """The columns for the marks of a plot at its right; so many that they do not change with the values."""
    if len(plot.curves) < 2:
        return 0
    marks = [len(curve.mark) for curve in plot.curves]
    return 1 + (sum(marks) + 1 if len(marks) == 2 else max(5, *marks))


def _ticks(shown: Shown, columns: int) -> list[tuple[float, str]]:
    """The times below a plot; the last one is now, or the end."""
    ticks = clock_ticks(shown.begin, shown.end, columns)
    if not shown.is_live:
        return ticks
    return [(place, word) for place, word in ticks if place * columns < columns - _NOW] + [(1.0, "now")]


def _legend(plot: Plot, width: int, cursor: tuple[int, int] | None) -> list[list[Text]]:
    """The title and the value of each curve, in as many lines as they need."""
    longest = len(plot.words(plot.top))
    lines: list[list[Text]] = [[(plot.title[:width], "strong")]]
    used = len(plot.title[:width])
    for number, curve in enumerate(plot.curves):
        value = plot.words(_last(curve.values) if cursor is None else value_at(curve.values, cursor[1], cursor[0]))
        entry = _entry(plot, number, value.ljust(longest))
        length = sum(len(text) for text, _ in entry)
        if used + length > width and used:
            lines[-1].append((" " * (width - used), ""))
            lines.append([])
            used = 0
        lines[-1] += entry
        used += length
    lines[-1].append((" " * (width - used), ""))
    return lines


def _entry(plot: Plot, number: int, value: str) -> Iterable[Text]:
    if len(plot.curves) == 1:
        return [("  ", ""), (value, "s0")]
    curve, style = plot.curves[number], f"s{number % STYLES}"
    name = f"{curve.name} " if curve.name else ""
    return [("  ", ""), (f"━{curve.mark} ", style), (name, "dim"), (value, "")]


def _last(values: Sequence[float | None]) -> float | None:
    """The last value, if it is not old."""
    return next((value for value in reversed(values[-max(1, len(values) // 50) :]) if value is not None), None)
