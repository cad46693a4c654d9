"""Where the overview draws each node and GPU, for any cluster on any terminal."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from agentless.tui.screens.overview.form import FRAME, TILE, TILE_LINES, Group, arranged

NODES = st.lists(st.integers(0, 16), max_size=40).map(
    lambda gpus: [Group(f"n{at}", count, f"rack {at // 7}" if at % 2 else "") for at, count in enumerate(gpus)]
)


def drawn_on(panel) -> set[tuple[int, int]]:
    return {(x, y) for x in range(panel.x, panel.x + panel.width) for y in range(panel.y, panel.y + panel.height)}


@given(NODES, st.integers(60, 300), st.integers(5, 98))
@example([Group("n", 8)], 60, 5)
def test_each_gpu_is_drawn_once_and_nothing_over_another(nodes, width, height):
    form = arranged(nodes, width, height, 8)
    taken: set[tuple[int, int]] = set()
    for panel in form.panels:
        here = drawn_on(panel)
        assert not taken & here
        taken |= here
        assert panel.x >= 0
        assert panel.x + panel.width <= width
        cells = [(x, y) for c in panel.cells for x in range(c.x, c.x + c.width) for y in range(c.y, c.y + c.height)]
        assert len(set(cells)) == len(cells)
        assert set(cells) <= here
    found = {panel.node: [cell.gpu for cell in panel.cells] for panel in form.panels if panel.node}
    assert found == {node.node: list(range(node.gpus)) for node in nodes}
    assert [len(line) for line in form.lines] == [sum(y in range(p.y, p.y + p.height) for p in form.panels)
                                                  for y in range(len(form.lines))]  # fmt: skip


@given(NODES, st.integers(60, 300), st.integers(5, 98))
def test_what_is_richer_is_taken_if_it_fits(nodes, width, height):
    form = arranged(nodes, width, height, 8)
    assert form.kind == "strips" or len(form.lines) <= height
    if form.kind == "tiles" and form.panels:
        rows = len({cell.y for panel in form.panels for cell in panel.cells})
        shelves = len({panel.y for panel in form.panels})
        curves = {cell.height - TILE_LINES for panel in form.panels for cell in panel.cells}
        assert rows == 0 or max(curves) == 6 or height - len(form.lines) < max(1, rows), "space is left over"
        assert len(form.lines) == FRAME * shelves + rows * (TILE_LINES + max(curves, default=0))


def test_gpus_are_in_rows_of_the_same_length():
    (panel,) = arranged([Group("n", 8)], TILE * 6 + 2, 60, 8).panels
    rows = [sum(cell.y == y for cell in panel.cells) for y in sorted({cell.y for cell in panel.cells})]
    assert rows == [4, 4]


def test_small_nodes_share_a_line_and_many_are_in_columns():
    small = arranged([Group(f"n{at}", 1) for at in range(4)], 130, 20, 8)
    assert {panel.y for panel in small.panels} == {0}
    many = arranged([Group(f"n{at}", 8) for at in range(200)], 200, 50, 8)
    assert many.kind == "strips"
    assert len(many.lines) <= 50
    assert many.cell == 3
    more = arranged([Group(f"n{at}", 8) for at in range(500)], 200, 60, 8)
    assert more.cell == 1
    assert len(more.lines) <= 60


def test_headings_are_above_their_nodes():
    nodes = [Group(f"n{at}", 8, f"rack {at // 30}") for at in range(60)]
    form = arranged(nodes, 80, 20, 8)
    names = [panel.node or panel.heading for panel in form.panels]
    assert names == ["rack 0", *(f"n{at}" for at in range(30)), "rack 1", *(f"n{at}" for at in range(30, 60))]
