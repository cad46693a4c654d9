"""Where each node and GPU is drawn: as tiles, as rows, or in a heat map, depending on how many there are.

Everything is counted in cells of the terminal, from the top left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

TILE = 25
"""The least width of a tile, with the gap."""
TILE_LINES = 4
"""The lines of a tile without its curve: state, utilization, memory, holder."""
MOST_CURVE = 6
"""The most lines of the curve in a tile."""
ROW = 46
"""The least width of the row of a GPU, with the gap."""
WIDE_ROW = 68
"""The width from which on a row has all but the power and the curve."""
FRAME = 3
"""The lines of the panel of a node around its tiles: the frame, and one about the machine."""
WIDE, NARROW = 3, 1
"""The width of a GPU in a heat map: with a number, or as a sign."""
STRIP = 2
"""The lines of a node in a heat map where there is space: its GPUs, and its load."""
LEGEND = 2
"""The lines below a heat map: what its signs mean, and the chosen GPU."""
BESIDE = {WIDE: 6, NARROW: 1}
"""The columns behind the GPUs of a node in a heat map: for how many are free, or only for a gap."""


class Group(NamedTuple):
    """A node, the number of its GPUs, and the heading that it is under, if any."""

    node: str
    gpus: int
    heading: str = ""


class Cell(NamedTuple):
    """A GPU, by its number on its node."""

    gpu: int
    x: int
    y: int
    width: int
    height: int


class Panel(NamedTuple):
    """A node and its GPUs; without a node, a heading."""

    node: str
    x: int
    y: int
    width: int
    height: int
    cells: tuple[Cell, ...] = ()
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """All panels. `lines` has those of each line, from the left. `cell` is the width of a GPU in a heat map."""

    kind: Literal["tiles", "rows", "strips"]
    panels: tuple[Panel, ...]
    lines: tuple[tuple[Panel, ...], ...]
    cell: int = 0


def arranged(nodes: Sequence[Group], width: int, height: int, names: int) -> Form:
    """The richest form that fits in `height`; a heat map may be higher, and leaves `LEGEND` lines of it.

    `names` is the width of the names of the nodes in a heat map.
    """
    tiles = _tiles(nodes, width, height)
    if tiles is not None:
        return Form("tiles", tuple(tiles), _by_line(tiles))
    for across in range(1, max(1, width // ROW) + 1):
        rows = list(_rows(nodes, width, across))
        if sum(panel.height for panel in rows) <= height:
            return Form("rows", tuple(rows), _by_line(rows))
    strips, cell = _strips(nodes, width, height - LEGEND, names)
    return Form("strips", tuple(strips), _by_line(strips), cell)


def height_of_rows(nodes: Sequence[Group], width: int) -> int:
    """The lines that rows take of which nothing is left out."""
    return sum(panel.height for panel in _rows(nodes, width, max(1, width // WIDE_ROW)))


def _by_line(panels: Sequence[Panel]) -> tuple[tuple[Panel, ...], ...]:
    lines: list[list[Panel]] = [[] for _ in range(max((panel.y + panel.height for panel in panels), default=0))]
    for panel in sorted(panels, key=lambda panel: panel.x):
        for y in range(panel.y, panel.y + panel.height):
            lines[y].append(panel)
    return tuple(map(tuple, lines))


# ---------------------------------------------------------------------- tiles


def _tiles(nodes: Sequence[Group], width: int, height: int) -> list[Panel] | None:
    """Panels with a tile for each GPU, as high as there is space; None if they do not fit."""
    shelves = list(_shelves(nodes, max(1, (width - 2) // TILE)))
    rows = sum(_rows_on(shelf) for shelf in shelves)
    curve = (height - FRAME * len(shelves)) // max(1, rows) - TILE_LINES
    if curve < 0 and nodes:
        return None
    tall = TILE_LINES + min(curve, MOST_CURVE)
    panels: list[Panel] = []
    y = 0
    for shelf in shelves:
        high = FRAME + tall * _rows_on(shelf)
        edges = [0, *accumulate(across for _, across in shelf)]
        for (node, across), start, end in zip(shelf, edges, edges[1:], strict=False):
            x, right = width * start // edges[-1], width * end // edges[-1]
            cells = tuple(_cells(node.gpus, across, x + 1, y + 2, right - x - 2, tall))
            panels.append(Panel(node.node, x, y, right - x, high, cells))
        y += high
    return panels


def _shelves(nodes: Sequence[Group], most: int) -> Iterator[list[tuple[Group, int]]]:
    """Nodes that are beside each other, each with the number of its tiles in a row.

    A node with more GPUs than fit is alone, in rows of about the same length: 4 and 4, not 6 and 2.
    """
    shelf: list[tuple[Group, int]] = []
    for node in nodes:
        rows = max(1, -(-node.gpus // most))
        across = max(1, -(-node.gpus // rows))
        if shelf and (rows > 1 or sum(each for _, each in shelf) + across > most or _rows_on(shelf) > 1):
            yield shelf
            shelf = []
        shelf.append((node, across))
    if shelf:
        yield shelf


def _rows_on(shelf: Sequence[tuple[Group, int]]) -> int:
    return max(-(-node.gpus // across) for node, across in shelf)


def _cells(gpus: int, across: int, x: int, y: int, width: int, height: int) -> Iterator[Cell]:
    """The GPUs of a node in rows; the last column of each is a gap."""
    for gpu in range(gpus):
        row, column = divmod(gpu, across)
        left, right = width * column // across, width * (column + 1) // across
        yield Cell(gpu, x + left, y + row * height, right - left, height)


# ---------------------------------------------------------------------- rows


def _rows(nodes: Sequence[Group], width: int, across: int) -> Iterator[Panel]:
    """A heading for each node, and below it rows of GPUs, so many beside each other."""
    y = 0
    for node in nodes:
        height = 1 + -(-node.gpus // across)
        yield Panel(node.node, 0, y, width, height, tuple(_cells(node.gpus, across, 0, y + 1, width, 1)))
        y += height


# ---------------------------------------------------------------------- a heat map


def _strips(nodes: Sequence[Group], width: int, height: int, names: int) -> tuple[list[Panel], int]:
    """A strip for each node, in columns if there are many, and the width of a GPU in it."""
    items: list[Group] = []
    for node in nodes:
        if node.heading and (not items or node.heading != items[-1].heading):
            items.append(Group("", 0, node.heading))
        items.append(node)
    most = max((node.gpus for node in nodes), default=1)
    fits = {cell: width // (names + 1 + most * cell + BESIDE[cell]) for cell in (WIDE, NARROW)}
    cell = WIDE if fits[WIDE] * height >= len(items) else NARROW
    across = max(1, min(fits[cell], -(-len(items) // max(1, height))))
    tall = STRIP if across == 1 and len(items) + len(nodes) <= height else 1
    down = -(-len(items) // across)
    panels: list[Panel] = []
    y = 0
    for at, item in enumerate(items):
        column, row = divmod(at, down)
        y = 0 if not row else y
        x, right = width * column // across, width * (column + 1) // across - (across > 1)
        high = tall if item.node else 1
        cells = tuple(Cell(gpu, x + names + 1 + gpu * cell, y, cell, 1) for gpu in range(item.gpus))
        panels.append(Panel(item.node, x, y, right - x, high, cells, "" if item.node else item.heading))
        y += high
    return panels, cell
