"""Every view at any size: no title is cut, and nothing is hidden while there is space for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from agentless.tui.app import VIEWS
from agentless.tui.screens.overview.view import Overview
from agentless.tui.widgets.table import Table
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import BOARD, RECORDED, alone, over  # noqa: F401 - for all

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


async def test_no_title_of_a_column_or_view_is_cut():
    async with over(RECORDED) as eyes:
        eyes.app.incoming.take({"tasks": BOARD["vps"], "workflows": BOARD["workflows"]})
        for number, view in enumerate(VIEWS, 1):
            await eyes.press(str(number))
            async for size in at_each_size(eyes, FEW):
                bar = eyes.text.splitlines()[0]
                assert VIEWS[view] in bar, size
                for table in eyes.app.view.query(Table):
                    titles = {column.title for column in table.columns}
                    shown = [column.title for column, _ in table.heading()]
                    assert set(shown) <= titles
                    heading = eyes.text.splitlines()[table.titles.region.y]
                    assert all(title in heading for title in shown), (view, size)


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
