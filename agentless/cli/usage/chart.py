"""A bar chart: a line for each value, readable without colour at any width."""

from __future__ import annotations

from collections.abc import Sequence

_FULL, _PARTS = "█", ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_LEAST = 5  # the width of the longest bar on a very narrow terminal


def bars(values: Sequence[tuple[str, float]], columns: int) -> list[str]:
    """The lines of a chart of these labels and values, on a terminal of `columns` columns."""
    names = max((len(name) for name, _ in values), default=0)
    figures = [f"{value:,.2f}" for _, value in values]
    longest = max(_LEAST, columns - names - max(map(len, figures), default=0) - 4)
    most = max((value for _, value in values), default=0.0) or 1.0
    drawn = (_bar(value / most * longest) for _, value in values)
    return [
        f"{name:>{names}}  {bar:{longest}}  {figure:>{max(map(len, figures))}}"
        for (name, _), bar, figure in zip(values, drawn, figures, strict=True)
    ]


def _bar(length: float) -> str:
    """A bar of this length, to an eighth of a column; one above 0 is always visible."""
    eighths = round(8 * length) or int(length > 0)
    return _FULL * (eighths // 8) + _PARTS[eighths % 8]
