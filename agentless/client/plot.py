"""Plots in braille dots with axes, for screens and commands.

A line is made of texts, each with the name of its style: `axis`, `grid`, or that of a series. plotext 5.3 takes 12 ms
of processor time for a curve of 260 points on 130x20, and 107 ms for eight, longer than a key may wait. This takes 2
and 10 ms, and 4 ms for a noisy curve with its band.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from agentless.model.units import format_indices

Text = tuple[str, str]
Tick = tuple[float, str]
"""A place on the axis of times, from 0 (the left edge) to 1, and its words."""

_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""The dots of a braille pattern, from the lowest row."""
_BLOCKS = "▁▂▃▄▅▆▇"
"""The heights of a curve in one line. The full block is missing, so that lines stay apart."""
_NEAR = 40
"""The part of a curve to each side of a value that counts in the mean there."""
_APART = 9
"""The least columns between two times of the clock."""
_BETWEEN = 16
"""The least columns between two times on the axis."""
_STEPS = (
    *(5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200),
    *(86400 * days for days in (1, 2, 3, 5, 7, 14)),
)
"""Seconds between two times on the axis: what a clock and a calendar make easy to read."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: evenly spaced values, None where nothing is known. `style` names its colour.

    `mark` is written at its right end, to tell it apart without colours. `below` is the style of a filled space. With
    the style of a `band`, the curve is the mean of the values nearby, and sparse dots go from the lowest to the highest
    of them: a load that goes up and down with each sample would be a wall of strokes.
    """

    name: str
    values: Sequence[float | None]
    style: str
    mark: str = ""
    below: str = ""
    band: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is around the curves: columns for the values at the left, and for the marks at the right.

    `ticks` are the times below; `upright`: a dotted line stands on each.
    """

    left: int
    right: int
    ticks: Sequence[Tick]
    upright: bool = True

    def columns(self, width: int) -> int:
        """The columns of the curves in a plot of this width."""
        return max(1, width - self.left - self.right)


def framed(
    series: Sequence[Series],
    width: int,
    height: int,
    frame: Frame,
    *,
    top: float,
    words: Callable[[float], str],
    filled: bool = False,
    cursor: int | None = None,
) -> list[list[Text]]:
    """The lines of a plot like `plot`, in a frame that several may share, so that they are aligned."""
    rows, columns = max(1, height - 1), frame.columns(width)
    labels = _labels(rows, top, words)
    marks = _marks(series, columns, rows, top, frame.right - 1)
    upright = {round((columns - 1) * place) for place, _ in frame.ticks if frame.upright} - {0, columns - 1}
    gridded = {row for row in labels if row < rows - 1}
    drawn = dotted(series, columns, rows, top, filled=filled, grid=gridded, upright=upright, cursor=cursor)
    lines: list[list[Text]] = []
    for row, line in enumerate(drawn):
        edge = "┤" if row in labels else "│"
        lines.append([(labels.get(row, "").rjust(frame.left - 1) + edge, "axis"), *line])
        if frame.right:
            text, style = marks.get(row, ("", ""))
            lines[-1].append((" " + text.ljust(frame.right - 1), style))
    return [*lines, [(_ticked(columns, frame, width), "axis")]]


def lanes(
    series: Sequence[Series],
    width: int,
    height: int,
    frame: Frame,
    values: Sequence[str],
    *,
    top: float,
    cursor: int | None = None,
) -> list[list[Text]]:
    """The lines of curves that stand one above the other, each from 0 to `top` in as many lines.

    The mark of each is at its left, and its value, one of `values`, at its right.
    """
    columns, deep = frame.columns(width), max(1, (height - 1) // max(1, len(series)))
    upright = {round((columns - 1) * place) for place, _ in frame.ticks} - {0, columns - 1}
    lines: list[list[Text]] = []
    for each, value in zip(series, values, strict=True):
        for row, line in enumerate(_lane(each, columns, deep, top, upright, cursor), 1):
            edge, said = (f"{each.mark}┤", value) if row == deep else ("│", "")
            lines.append([(edge.rjust(frame.left), "axis"), *line, (said.rjust(frame.right), "")])
    blank = [(" " * width, "")]
    return [*lines, [(_ticked(columns, frame, width), "axis")], *[blank] * (height - 1 - len(lines))]


def label_width(height: int, top: float, words: Callable[[float], str]) -> int:
    """The columns that the values at the left of a plot of this height take."""
    return max(map(len, _labels(max(1, height - 1), top, words).values())) + 1


def clock_ticks(begin: float, end: float, columns: int) -> list[Tick]:
    """Times of the clock between two moments, as far apart as so many columns need; dates at midnight."""
    if end <= begin:
        return []
    parts = (step for step in _STEPS if (end - begin) / step * (_APART if step >= 60 else _APART + 3) <= columns)
    step = next(parts, _STEPS[-1])
    zone = datetime.fromtimestamp(end, UTC).astimezone().utcoffset()
    shift = zone.total_seconds() if zone else 0.0
    first = -int(-(begin + shift) // step)
    times = [number * step - shift for number in range(first, int((end + shift) // step) + 1)]
    return [((at - begin) / (end - begin), _clock(at, step)) for at in times]


def value_at(values: Sequence[float | None], columns: int, column: int) -> float | None:
    """The value of a curve in a column of those that it is drawn on."""
    return spread(values, columns)[column]


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
    left, marks = label_width(height, top, words), [each.mark for each in series if each.mark]
    right = 1 + len(",".join(marks)) if marks else 0
    parts = max(1, min(6, (width - left - right) // _BETWEEN))
    frame = Frame(left, right, [(part / parts, times(part / parts)) for part in range(parts + 1)], upright=False)
    return framed(series, width, height, frame, top=top, words=words, filled=filled, cursor=cursor)


def dotted(
    series: Sequence[Series],
    columns: int,
    rows: int,
    top: float,
    *,
    filled: bool = False,
    grid: Collection[int] = (),
    upright: Collection[int] = (),
    cursor: int | None = None,
) -> list[list[Text]]:
    """Only the curves, as `rows` lines; those in `grid` are dotted, and so are the `upright` columns."""
    dots = [[0] * columns for _ in range(rows)]
    styles = [[""] * columns for _ in range(rows)]
    curves = [_draw_band(each, dots, styles, top, filled=filled) if each.band else each for each in series]
    bands = {each.band for each in series} - {""}
    for each in curves:
        _draw(each, dots, styles, top, bands, filled=filled and not each.band)
    return [
        _row(bits, names, is_grid=row in grid, upright=upright, cursor=cursor)
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


def _draw(
    series: Series, dots: list[list[int]], styles: list[list[str]], top: float, bands: Collection[str], *, filled: bool
) -> None:
    rows, columns = len(dots), len(dots[0])
    before: int | None = None
    for x, value in enumerate(spread(series.values, columns * 2)):
        if value is None or top <= 0:
            before = None
            continue
        level = _level(value, top, rows)
        first = 0 if filled else level if before is None else min(level, before + (before < level))
        last = level if filled or before is None else max(level, before - (before > level))
        for y in range(first, last + 1):
            row, column = rows - 1 - y // 4, x // 2
            if styles[row][column] in bands:
                dots[row][column] = 0  # only the curve, so that it is seen without colours, too
            dots[row][column] |= _BITS[y % 4][x % 2]
            is_below = series.below and y // 4 < level // 4
            styles[row][column] = series.below if is_below else series.style
        before = level


def _draw_band(series: Series, dots: list[list[int]], styles: list[list[str]], top: float, *, filled: bool) -> Series:
    """Draw what is around a curve; returns the curve of the means."""
    rows, columns = len(dots), len(dots[0])
    around = _around(series.values, columns * 2)
    for x, (low, _, high) in ((x, each) for x, each in enumerate(around) if each and top > 0):
        least, most = _level(low, top, rows), _level(high, top, rows)
        sparse = range(least + (x + least) % 2, most + 1, 2)
        for y in (*range(least), *sparse) if filled else sparse:
            dots[rows - 1 - y // 4][x // 2] |= _BITS[y % 4][x % 2]
            styles[rows - 1 - y // 4][x // 2] = series.band
    return replace(series, values=_means(around))


def _around(values: Sequence[float | None], count: int) -> list[tuple[float, float, float] | None]:
    """At so many places the lowest, the mean and the highest of the values nearby; None where nothing is known."""
    near = max(1, count // _NEAR)
    found: list[tuple[float, float, float] | None] = []
    for at, value in enumerate(spread(values, count)):
        first, here, end = (max(0, place) * len(values) // count for place in (at - near, at, at + near + 1))
        known = [each for each in values[first : max(here + 1, end)] if each is not None]
        found.append(None if value is None else (min(known), sum(known) / len(known), max(known)))
    return found


def _means(around: Sequence[tuple[float, float, float] | None]) -> list[float | None]:
    return [each and each[1] for each in around]


def _level(value: float, top: float, rows: int) -> int:
    """The row of dots of a value, from 0 at the bottom."""
    return round(max(0.0, min(1.0, value / top)) * (rows * 4 - 1))


def _row(
    dots: list[int], styles: list[str], *, is_grid: bool, upright: Collection[int], cursor: int | None
) -> list[Text]:
    """A line of the plot area."""
    level = {x for x in range(1, len(dots), 2) if not {x - 1, x + 1} & set(upright)} if is_grid else set()
    cells = [
        (chr(0x2800 + bits), style) if bits else ("·" if x in upright or x in level else " ", "grid")
        for x, (bits, style) in enumerate(zip(dots, styles, strict=True))
    ]
    return _joined_cells(cells, cursor)


def _lane(
    series: Series, columns: int, rows: int, top: float, upright: Collection[int], cursor: int | None
) -> list[list[Text]]:
    """A filled curve that leaves a gap to the one above. In one line it is of blocks: dots have three heights there."""
    if rows > 1:
        top *= rows * 4 / (rows * 4 - 1)
        return dotted([series], columns, rows, top, filled=True, upright=upright, cursor=cursor)
    most = len(_BLOCKS) - 1
    cells = [
        ("·" if x in upright else " ", "grid")
        if value is None
        else (_BLOCKS[round(max(0.0, min(1.0, value / top)) * most)], series.style)
        for x, value in enumerate(spread(series.values, columns))
    ]
    return [_joined_cells(cells, cursor)]


def _joined_cells(cells: list[Text], cursor: int | None) -> list[Text]:
    """The cells of a line as few texts as possible, with the cursor."""
    if cursor is not None and cursor < len(cells):
        cells[cursor] = ("│", "cursor")  # its colour alone would be lost on a curve of that colour, and without colours
    return [("".join(text for text, _ in alike), style) for style, alike in groupby(cells, key=lambda cell: cell[1])]


def _ticked(columns: int, frame: Frame, width: int) -> str:
    """The times below a plot, each centred below its column, the first and the last one within the plot.

    One that would touch the one before it is left out.
    """
    text = [" "] * width
    end = -1
    for place, word in frame.ticks:
        at = frame.left + round((columns - 1) * place) - (len(word) // 2 if place else 0)
        at = max(0, min(at, width - len(word)))
        if at > end and len(word) <= width:
            text[at : at + len(word)] = word
            end = at + len(word)
    return "".join(text)


def _clock(at: float, step: int) -> str:
    then = datetime.fromtimestamp(at, UTC).astimezone()
    if step >= 86400 or (then.hour, then.minute, then.second) == (0, 0, 0):
        return f"{then:%m-%d}"
    return f"{then:%H:%M:%S}" if step < 60 else f"{then:%H:%M}"


def _marks(series: Sequence[Series], columns: int, rows: int, top: float, room: int) -> dict[int, Text]:
    """What is written at the right ends of the curves, by row: the marks of all that end there, as far as they fit."""
    ends: dict[int, list[Series]] = {}
    for each in series:
        values = _means(_around(each.values, columns * 2)) if each.band else each.values
        last = next((value for value in reversed(values) if value is not None), None)
        if each.mark and last is not None and top > 0:
            level = _level(last, top, rows)
            ends.setdefault(rows - 1 - level // 4, []).append(each)
    return {row: (_joined(found, room), found[-1].style) for row, found in ends.items()}


def _joined(found: Sequence[Series], room: int) -> str:
    marks = [each.mark for each in found]
    text = format_indices(map(int, marks)) if all(map(str.isdecimal, marks)) else ",".join(marks)
    return text if len(text) <= room else f"×{len(marks)}"
