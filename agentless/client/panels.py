"""Several plots over the same time, for a screen or a command: how they share the space, and their legends.

The styles of texts are those of `plot`, `s0` to `s7` of curves, `f0` to `f7` of the space below them, `strong` and
`dim`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentless.client.plot import Frame, Series, Text, clock_ticks, framed, label_width, lanes, value_at

STYLES = 8
"""The number of styles of curves."""

_LEAST = 5
"""The least lines of a plot below its legend, with the axis of times."""
_HIGH = 16
"""The lines of a plot from which on fewer are drawn beside each other."""
_GAP = 2
_NARROW, _WIDE = 64, 150
"""The least columns for two plots, and for three, beside each other."""
_NOW = 7
"""Columns of the axis of times that belong to its end."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: what is written at its end, its name in the legend, and evenly spaced values.

    `colour` is the number of its style if it is alone.
    """

    mark: str
    name: str
    values: Sequence[float | None]
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves from 0 to `top`. `words` writes a value. A single curve is filled, and needs no mark and no name.

    `apart`: several curves stand one above the other, so that none hides another one. `exact`: each value is drawn, not
    the mean of those nearby.
    """

    title: str
    curves: Sequence[Curve]
    top: float
    words: Callable[[float | None], str]
    apart: bool = False
    exact: bool = False

    @property
    def in_lanes(self) -> bool:
        return self.apart and len(self.curves) > 1

    @property
    def least(self) -> int:
        """The least lines below its legend, with the axis of times."""
        return len(self.curves) + 1 if self.in_lanes else _LEAST

    @property
    def series(self) -> list[Series]:
        """The curves with their styles."""
        if len(self.curves) == 1:
            (curve,) = self.curves
            below = f"f{curve.colour}"
            return [Series("", curve.values, f"s{curve.colour}", below=below, band="" if self.exact else below)]
        if self.apart:
            return [
                Series(each.name, each.values, f"s{each.colour}", each.mark, f"f{each.colour}") for each in self.curves
            ]
        return [
            Series(each.name, each.values, f"s{number % STYLES}", each.mark, band=f"f{number % STYLES}")
            for number, each in enumerate(self.curves)
        ]


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
    return sum(_least(row, width) for row in _rows(shown.plots, _beside(width)))


def drawn(shown: Shown, width: int, height: int, at: float | None = None) -> tuple[list[list[Text]], list[Area]]:
    """The lines of all plots, and where each is; the legends have the values `at` a moment, or the last ones.

    The lines are as many as `height`, or as many as they need at least. Each is `width` columns wide.
    """
    rows = _comfortable(shown.plots, width, height)
    spare = max(0, height - sum(_least(row, width) for row in rows))
    lines: list[list[Text]] = []
    areas: list[Area] = []
    for row, more in zip(rows, _shared(spare, rows), strict=True):
        texts, found = _row(shown, row, width, _least(row, width) + more, at)
        areas += [Area(area.x, area.y + len(lines), area.columns, area.rows) for area in found]
        lines += texts
    return lines, areas


# ---------------------------------------------------------------------- inside


def _beside(width: int) -> int:
    """How many plots beside each other are readable."""
    return 1 if width < _NARROW else 2 if width < _WIDE else 3


def _rows(plots: Sequence[Plot], beside: int) -> list[Sequence[Plot]]:
    """The plots by rows: so many in each, and fewer in the first one if some are over."""
    first = len(plots) % beside or beside
    return [plots[:first], *(plots[at : at + beside] for at in range(first, len(plots), beside))] if plots else []


def _comfortable(plots: Sequence[Plot], width: int, height: int) -> list[Sequence[Plot]]:
    """The plots by rows, as few in each as leave all of them high enough."""
    most = _beside(width)
    beside = next((each for each in range(1, most) if height >= _HIGH * len(_rows(plots, each))), most)
    return _rows(plots, beside)


def _shared(spare: int, rows: Sequence[Sequence[Plot]]) -> list[int]:
    """The spare lines of each row: lanes need as many more for all of them, so others come first."""
    takers = [at for at, row in enumerate(rows) if not all(plot.in_lanes for plot in row)] or [*range(len(rows))]
    shares = dict.fromkeys(range(len(rows)), 0)
    for number, at in enumerate(takers):
        shares[at] = (spare + len(takers) - 1 - number) // len(takers)
    return [*shares.values()]


def _widths(count: int, width: int) -> list[int]:
    room = width - _GAP * (count - 1)
    return [room // count + (number < room % count) for number in range(count)]


def _legend_height(row: Sequence[Plot], width: int) -> int:
    widths = _widths(len(row), width)
    return max(len(_legend(plot, wide, None, 1)) for plot, wide in zip(row, widths, strict=True))


def _least(row: Sequence[Plot], width: int) -> int:
    """The least lines of plots beside each other."""
    return _legend_height(row, width) + max(plot.least for plot in row)


def _row(
    shown: Shown, row: Sequence[Plot], width: int, height: int, at: float | None
) -> tuple[list[list[Text]], list[Area]]:
    """Plots beside each other: their lines, and where they are."""
    left = max(_left(plot, height) for plot in shown.plots)
    right = max(_right(plot) for plot in shown.plots)
    widths = _widths(len(row), width)
    frame = Frame(left, right, _ticks(shown, min(widths) - left - right))
    cells = list(zip(row, widths, strict=True))
    legends = [_legend(plot, wide, shown.column(at, columns := frame.columns(wide)), columns) for plot, wide in cells]
    above = max(_legend_height(row, width), *map(len, legends))
    lines: list[list[Text]] = [[] for _ in range(height)]
    areas, x = [], 0
    for (plot, wide), legend in zip(cells, legends, strict=True):
        columns = frame.columns(wide)
        curves = _curves(plot, wide, height - above, frame, shown.column(at, columns))
        blank: list[list[Text]] = [[(" " * wide, "")]] * (above - len(legend))
        for y, text in enumerate([*legend, *blank, *curves]):
            lines[y] += [(" " * _GAP, ""), *text] if x else text
        areas.append(Area(x + frame.left, above, columns, height - above - 1))
        x += wide + _GAP
    return lines, areas


def _left(plot: Plot, height: int) -> int:
    """The columns of the axis of a plot at its left."""
    if plot.in_lanes:
        return 1 + max(len(curve.mark) for curve in plot.curves)
    return label_width(height - _LEAST, plot.top, plot.words)


def _curves(plot: Plot, width: int, height: int, frame: Frame, cursor: int | None) -> list[list[Text]]:
    """A plot without its legend."""
    if plot.in_lanes:
        values = [plot.words(_at(series, cursor, frame.columns(width))) for series in plot.series]
        return lanes(plot.series, width, height, frame, values, top=plot.top, cursor=cursor)
    filled = len(plot.curves) == 1
    return framed(plot.series, width, height, frame, top=plot.top, words=plot.words, filled=filled, cursor=cursor)


def _right(plot: Plot) -> int:
    """The columns for the marks of a plot at its right; so many that they do not change with the values."""
    if len(plot.curves) < 2:
        return 0
    if plot.in_lanes:
        values = (value for curve in plot.curves for value in (*curve.values, plot.top) if value is not None)
        return 1 + max(map(len, map(plot.words, values)))
    marks = [len(curve.mark) for curve in plot.curves]
    return 1 + (sum(marks) + 1 if len(marks) == 2 else max(5, *marks))


def _ticks(shown: Shown, columns: int) -> list[tuple[float, str]]:
    """The times below a plot; the last one is now, or the end."""
    ticks = clock_ticks(shown.begin, shown.end, columns)
    if not shown.is_live:
        return ticks
    return [(place, word) for place, word in ticks if place * columns < columns - _NOW] + [(1.0, "now")]


def _legend(plot: Plot, width: int, cursor: int | None, columns: int) -> list[list[Text]]:
    """The title and the value of each curve at the cursor, in as many lines as they need."""
    longest = len(plot.words(plot.top))
    lines: list[list[Text]] = [[(plot.title[:width], "strong")]]
    used = len(plot.title[:width])
    if plot.in_lanes:
        scale = f"  each 0 to {plot.words(plot.top)}"
        lines[-1].append((scale if used + len(scale) <= width else "", "dim"))
        used += len(lines[-1][-1][0])
    for series in () if plot.in_lanes else plot.series:
        value = plot.words(_at(series, cursor, columns))
        entry = _entry(series, value)
        length = sum(len(text) for text, _ in entry)
        if used + length > width and used:
            lines[-1].append((" " * (width - used), ""))
            lines.append([])
            used = 0
        spaces = min(max(0, longest - len(value)), width - used - length)
        lines[-1] += [*entry, (" " * spaces, "")]
        used += length + spaces
    lines[-1].append((" " * (width - used), ""))
    return lines


def _entry(series: Series, value: str) -> list[Text]:
    if not series.mark:
        return [("  ", ""), (value, series.style)]
    name = f"{series.name} " if series.name else ""
    return [("  ", ""), (f"━{series.mark} ", series.style), (name, "dim"), (value, "")]


def _at(series: Series, cursor: int | None, columns: int) -> float | None:
    """The value of a curve at the cursor; without one, the last value."""
    return _last(series.values) if cursor is None else value_at(series.values, columns, cursor)


def _last(values: Sequence[float | None]) -> float | None:
    """The last value, if it is not old."""
    return next((value for value in reversed(values[-max(1, len(values) // 50) :]) if value is not None), None)
