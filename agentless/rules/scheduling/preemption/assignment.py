"""The cheapest way to give each row a column of its own: the Hungarian method."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cheapest(costs: Sequence[Sequence[float]]) -> list[int] | None:
    """The column of each row, all different, of which the costs are the least in sum; None if there is no such way.

    A cost of infinity is impossible. There are at least as many columns as rows.
    """
    rows, columns = len(costs), len(costs[0])
    above, left = [0.0] * (rows + 1), [0.0] * (columns + 1)
    row_of, came_from = [0] * (columns + 1), [0] * (columns + 1)  # 0: none; rows and columns count from 1
    for row in range(1, rows + 1):
        row_of[0], at = row, 0
        least, seen = [math.inf] * (columns + 1), [False] * (columns + 1)
        while row_of[at]:
            seen[at] = True
            here, step, after = row_of[at], math.inf, 0
            for column in range(1, columns + 1):
                if seen[column]:
                    continue
                cost = costs[here - 1][column - 1] - above[here] - left[column]
                if cost < least[column]:
                    least[column], came_from[column] = cost, at
                if least[column] < step:
                    step, after = least[column], column
            if step == math.inf:
                return None
            for column in range(columns + 1):
                if seen[column]:
                    above[row_of[column]] += step
                    left[column] -= step
                else:
                    least[column] -= step
            at = after
        while at:
            row_of[at] = row_of[came_from[at]]
            at = came_from[at]
    found = {row: column - 1 for column, row in enumerate(row_of) if column and row}
    return [found[row] for row in range(1, rows + 1)]
