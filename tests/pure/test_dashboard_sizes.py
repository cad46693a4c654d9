"""Every view at any size: nothing overlaps, no title is cut, and nothing is hidden while there is space for it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import combinations, cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.screen import ModalScreen
from textual.widgets import Footer

from agentless.tui.app import VIEWS
from agentless.tui.screens.overview.view import Overview
from agentless.tui.widgets.table import Table
from tests.fleet.eyes import Eyes
from tests.pure.scene import WAITS
from tests.pure.scene import cluster as scene
from tests.pure.test_dashboard_views import RECORDED, alone, over  # noqa: F401 - for all
from tests.pure.walk import OPENED, dashboard, settle, stillness, walk

Size = tuple[int, int]
LEAST = 60
"""Columns from which on all of this holds."""
MOST_EMPTY = 1 / 3
"""The share of a view that may be empty while something is hidden."""


def faults(eyes: Eyes) -> Iterator[str]:
    """What is wrong with what is on the screen."""
    screen, lines = eyes.app.screen, eyes.text.splitlines()
    width, height = eyes.app.size
    if len(lines) > height or max(map(cell_len, lines)) > width:
        yield "larger than the screen"
    for parent in (screen, *screen.query("*")):
        shown = [each for each in parent.children if each.display and each.region.area]
        for one, other in combinations(shown, 2):
            if one.layer == other.layer and one.region.overlaps(other.region):
                yield f"{one} is over {other}"
    for table in screen.query(Table):
        if table.region.area:
            yield from faults_of_table(table, lines)
    if not isinstance(screen, ModalScreen) and any(each.max_scroll_y for each in screen.query("*") if each.region.area):
        empty = sum(not line.strip() for line in lines)
        if empty > height * MOST_EMPTY:
            yield f"{empty} of {height} lines are empty, and something is scrolled"
    if screen.query(Footer) and not lines[-1].strip():
        yield "no keys are shown"


def faults_of_table(table: Table, lines: Sequence[str]) -> Iterator[str]:
    """Of its titles, and of its columns."""
    area = table.region
    heading = lines[table.titles.region.y]
    if cut := [column.title for column, _ in table.heading() if column.title not in heading]:
        yield f"cut titles: {cut}"
    used = max(cell_len(line[area.x : area.right].rstrip()) for line in lines[area.y : area.bottom])
    if table.hidden and used < area.width * (1 - MOST_EMPTY):
        yield f"{used} of {area.width} columns are used, and hidden are {table.hidden}"


async def walked(nodes: int, waiting: int, sizes: Sequence[Size], views: int) -> list[str]:
    """The faults of the first so many views, each at the next one of these sizes."""
    line, found, sized = scene(nodes), [], cycle(sizes)
    more = [{**WAITS, "id": f"w{at:010}", "batch": f"b{at // 8}", "position": 9 + at} for at in range(waiting)]
    async with dashboard({**line, "tasks": [*line["tasks"], *more]}, sizes[0]) as eyes:
        async for view in walk(eyes):
            width, height = next(sized)
            await eyes.pilot.resize_terminal(width, height)
            await settle(eyes)
            found += [f"{view} at {width}x{height}: {fault}" for fault in faults(eyes)]
            views -= 1
            if not views:
                break
    return found


def check(nodes: int, waiting: int, sizes: Sequence[Size], views: int) -> None:
    with tempfile.TemporaryDirectory() as folder, stillness(Path(folder)):
        assert asyncio.run(walked(nodes, waiting, sizes, views)) == []


any_size = st.tuples(st.integers(LEAST, 300), st.integers(16, 100))


@pytest.mark.parametrize(("nodes", "sizes"), [(3, [(60, 16), (160, 24), (97, 60)]), (1, [(61, 20), (300, 100)])])
def test_no_view_cuts_a_title_overlaps_or_wastes_space(nodes, sizes):
    check(nodes, 5, sizes, len(VIEWS))


@pytest.mark.slow
@pytest.mark.timeout(600)
@given(st.integers(1, 60) | st.just(200), st.integers(0, 300), st.lists(any_size, min_size=5, max_size=11))
@settings(max_examples=6)
def test_nothing_that_is_opened_does_so_either_at_any_size(nodes, waiting, sizes):
    check(nodes, waiting, sizes, len(VIEWS) + len(OPENED))


# ------------------------------------------------------------------------------------------- overview

SIZES = [(60, 16), (73, 21), (80, 24), (97, 33), (120, 40), (149, 44), (150, 45), (200, 60), (240, 30), (300, 100)]
FEW = [(60, 16), (80, 24), (120, 40), (200, 60)]
CASES = [(3, FEW), (50, FEW), *(pytest.param(nodes, SIZES, marks=pytest.mark.slow) for nodes in (1, 3, 8, 50, 500))]


def cluster(nodes: int) -> dict:
    """So many nodes of 8 GPUs, in four racks."""
    line = json.loads(json.dumps(RECORDED))
    first, gpus = line["nodes"][0], [gpu for gpu in line["gpus"] if gpu["node"] == "node1"]
    return {
        **line,
        "nodes": [{**first, "name": f"n{at:03}", "labels": {"rack": str(at % 4)}} for at in range(nodes)],
        "gpus": [{**gpu, "node": f"n{at:03}", "uuid": f"{gpu['uuid']}-{at}"} for at in range(nodes) for gpu in gpus],
    }


async def at_each_size(eyes: Eyes, sizes: Sequence[tuple[int, int]]) -> AsyncIterator[tuple[int, int]]:
    for size in sizes:
        await eyes.pilot.resize_terminal(*size)
        for _ in range(2):
            await eyes.pilot.pause()
        yield size


@pytest.mark.parametrize(("nodes", "sizes"), CASES)
async def test_the_overview_hides_nothing_while_a_third_of_it_is_empty(nodes, sizes):
    async with over(cluster(nodes)) as eyes:
        for label in ("", "rack"):
            async for width, height in at_each_size(eyes, sizes):
                overview = eyes.app.query_one(Overview)
                lines = eyes.text.splitlines()
                assert all(len(line) <= width for line in lines)
                hidden = [shown.length() > shown.size.height for shown in (overview.map, overview.news)]
                for part in ("#left", "#right"):
                    region = overview.query_one(part).region
                    rows = [line[region.x : region.right] for line in lines[region.y : region.bottom]]
                    empty = sum(not row.strip() for row in rows) / max(1, len(rows))
                    assert not any(hidden) or empty <= 1 / 3, (part, width, height, label)
                covered = [
                    w.region for w in (overview.map, overview.news, overview._below, overview._beside) if w.display
                ]
                assert sum(each.area for each in covered) <= width * height
                for at, one in enumerate(covered):
                    assert not any(one.overlaps(other) for other in covered[at + 1 :]), (width, height)
            overview.map.action_group()
