"""Every view of the dashboard as it looks, at all sizes, in all colours, and with few and many nodes.

`AGENTLESS_WRITE=1 pytest tests/pure/test_dashboard_screens.py` draws the pictures anew, and with Chromium those of the
documentation; then look at them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import async_playwright

from agentless.tui.app import VIEWS
from agentless.tui.screens.overview.use import use_of
from tests.browser import ALONE, CHROMIUM
from tests.fleet.eyes import Eyes
from tests.pure.pictures import difference, drawn, plain, shown
from tests.pure.scene import BOARD, RUNS, cluster
from tests.pure.test_dashboard_sizes import LEAST, faults
from tests.pure.walk import OPENED, dashboard, settle, stillness, walk

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "data" / "dashboard"
SEEN_NOW = ROOT / "build" / "screens"
"""Where a picture goes that differs from the one that is kept."""
WRITES = bool(os.environ.get("AGENTLESS_WRITE"))
PICTURES = {"overview": ("1",), "gpus": ("2",), "tasks": ("4",), "vps": ("7",), "workflow": ("8", "enter")}
"""Of the documentation, with the keys that show them."""


class Shot(NamedTuple):
    """How all views are drawn once. Each size, each theme and each number of nodes is in at least one."""

    width: int
    height: int
    theme: str
    nodes: int


QUICK = Shot(80, 24, "ansi-dark", 8)
SHOTS = (
    Shot(48, 40, "textual-dark", 8),
    Shot(120, 40, "textual-light", 50),
    Shot(160, 50, "high-contrast", 1),
    Shot(200, 60, "textual-dark", 500),
)
OVERVIEWS = [
    (width, height, nodes)
    for width, height in ((48, 40), (80, 24), (120, 40), (160, 50), (200, 60))
    for nodes in (1, 3, 8, 50, 500)
]
"""The overview is drawn in another form for each."""


@pytest.fixture
def still(tmp_path: Path) -> Iterator[None]:
    with stillness(tmp_path):
        yield


async def picture(eyes: Eyes) -> str:
    """What is on the screen once all answers are there."""
    await settle(eyes)
    return drawn(shown(eyes.app), eyes.app.size.width)


def compared(name: str, seen: str) -> str:
    """How a picture differs from the one that is kept, or nothing; when pictures are drawn anew, it is kept."""
    kept = KEPT / f"{name}.svg"
    if WRITES:
        kept.write_text(seen)
    found = difference(kept.read_text(), seen) if kept.exists() else f"there is no {kept.relative_to(ROOT)}"
    if not found:
        return ""
    SEEN_NOW.mkdir(parents=True, exist_ok=True)
    (SEEN_NOW / kept.name).write_text(seen)
    return f"{name} differs; what is seen is in {SEEN_NOW.relative_to(ROOT)}/{kept.name}:\n{found}"


async def compare_all(shot: Shot) -> None:
    """Fail with all differences of all views."""
    size = f"{shot.width}x{shot.height}"
    found = []
    async with dashboard(cluster(shot.nodes), (shot.width, shot.height), shot.theme) as eyes:
        async for view in walk(eyes):
            found.append(compared(f"{view}-{size}", await picture(eyes)))
            if shot.width >= LEAST:
                found += [f"{view} at {size}: {fault}" for fault in faults(eyes)]
    if any(found):
        pytest.fail("\n\n".join(filter(None, found)), pytrace=False)


async def test_each_view_looks_as_it_was_looked_at(still):
    await compare_all(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: f"{shot.width}x{shot.height}")
async def test_each_view_looks_as_it_was_looked_at_in_other_sizes_and_colours(still, shot):
    await compare_all(shot)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "nodes"), OVERVIEWS)
async def test_the_overview_looks_as_it_was_looked_at(still, width, height, nodes):
    async with dashboard(cluster(nodes), (width, height)) as eyes:
        found = compared(f"overview-{width}x{height}-{nodes}", await picture(eyes))
    if found:
        pytest.fail(found, pytrace=False)


def test_each_picture_is_compared_and_all_are_small():
    views = [*VIEWS, *OPENED]
    names = {f"{view}-{shot.width}x{shot.height}.svg" for view in views for shot in (QUICK, *SHOTS)}
    names |= {f"overview-{width}x{height}-{nodes}.svg" for width, height, nodes in OVERVIEWS}
    kept = list(KEPT.glob("*.svg"))
    assert {picture.name for picture in kept} == names
    assert sum(picture.stat().st_size for picture in kept) < 3_000_000


def test_a_difference_is_told_by_its_line():
    kept = (KEPT / f"tasks-{QUICK.width}x{QUICK.height}.svg").read_text()
    assert difference(kept, kept) == ""
    line = next(y for y, text in enumerate(plain(kept), 1) if RUNS["id"] in text)
    moved = difference(kept, kept.replace(f">{RUNS['id']}", f">{RUNS['id'][:-1]}?"))
    assert moved.startswith(f"line {line}\n  kept: {RUNS['id']} ")
    assert f"\n  seen: {RUNS['id'][:-1]}? " in moved
    coloured = difference(kept, re.sub(r"(\.[a-z]+\{)fill:#[0-9a-f]+", r"\1fill:#123456", kept, count=1))
    assert "only its looks" in coloured
    assert "fill:#123456" in coloured


# ------------------------------------------------------------------------ pictures of the documentation


@pytest.mark.skipif(not (WRITES and CHROMIUM), reason="a picture of the documentation is drawn when it is asked for")
@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_of_the_documentation_is_drawn(still, tmp_path, name):
    async with dashboard(cluster(3), (120, 36)) as eyes:
        if name == "vps":
            eyes.app.incoming.take({"tasks": BOARD["vps"]})
        await eyes.press(*PICTURES[name])
        await settle(eyes)
        (tmp_path / "picture.svg").write_text(eyes.app.export_screenshot(title="agentless dashboard"))
    await photographed(tmp_path / "picture.svg", ROOT / "docs" / "pictures" / f"{name}.png")


async def photographed(picture: Path, photograph: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        page = await browser.new_page(viewport={"width": 1500, "height": 950})
        await page.goto(picture.as_uri())
        photograph.parent.mkdir(exist_ok=True)
        await page.locator("svg").first.screenshot(path=photograph)
        await browser.close()


# ------------------------------------------------------------------------------------------------ signs


async def test_what_is_sick_who_uses_most_and_what_starts_next_is_seen_without_a_key(still):
    """On a large screen, a terminal's usual sizes and a phone."""
    async with dashboard(cluster(8), (200, 60)) as eyes:
        for size in ((200, 60), (120, 40), (80, 24), (48, 40)):
            await eyes.pilot.resize_terminal(*size)
            await settle(eyes)
            assert re.search(r"node6 (offline|.* 0/4  offline: no route)", eyes.text), size
            assert "Most GPUs " in eyes.text
            assert re.search(r" ann +(█+▌?░+ )?6", eyes.text), size
            assert re.search(r" alice sweep: 4 of .* next, within 24m 59s", eyes.text), size


async def test_a_bar_says_what_it_is_of_also_on_a_phone(still):
    async with dashboard(cluster(3), (48, 40)) as eyes:
        await eyes.pilot.pause()
        assert re.search(r" 1 util █+▌?░*  94% mem █+▌?░*  48.1/80G  ann pre", eyes.text)
        await eyes.pilot.resize_terminal(140, 30)
        await settle(eyes)
        assert re.search(r" 1 util █+▌?░*  94% mem █+▌?░*  48.1/80 GiB  63C  ann pretr", eyes.text)
        await eyes.press("4", "d")
        await settle(eyes)
        assert re.search(r"util █+▌?░*  93%  mem  █+▌?░*", eyes.text)


async def test_the_plot_of_all_gpus_and_the_line_on_top_agree_and_a_slice_is_a_part_of_its_gpu(still):
    """A GPU of 80 GiB in slices, beside one of 24 GiB; the third one is on a node that does not answer."""

    def sized(gpu: dict, used: int, total: int, **more: object) -> dict:
        return {**gpu, "memory_used_mib": used << 10, "memory_total_mib": total << 10, **more}

    line = cluster(6)
    whole, small, lost = (next(gpu for gpu in line["gpus"] if gpu["node"] == f"node{at}") for at in (1, 2, 6))
    whole = sized(whole, 40, 80, state="partitioned", utilization_pct=None)
    slices = [
        sized(whole, used, 40, parent=whole["uuid"], uuid=f"MIG-{used}", kind="slice", number=f"0/{used}", state="free")
        for used in (0, 40)
    ]
    gpus = [whole, *slices, sized(small, 12, 24, utilization_pct=60), lost]
    async with dashboard({**line, "gpus": gpus}, (200, 60)) as eyes:
        await settle(eyes)
        assert "utilization 60%" in eyes.line("problem")
        assert "GPU memory 52.0/104 GiB" in eyes.line("problem")
        assert "All GPUs ━u utilization 60%  ━m memory 50%" in eyes.text
    totals = {(gpu["node"], gpu["uuid"]): gpu["memory_total_mib"] for gpu in (whole, gpus[3])}
    rows = [{**gpu, **{key: [gpu[key]] for key in ("utilization_pct", "memory_used_mib")}} for gpu in gpus]
    assert use_of(rows, totals) == ([60], [50])


async def test_the_linux_console_gets_signs_that_its_font_has(still, monkeypatch):
    monkeypatch.setenv("TERM", "linux")
    async with dashboard(cluster(1), (120, 40), "ansi-dark") as eyes:
        text = eyes.text
        await eyes.app.push_screen(OPENED["node"](eyes.app))
        await settle(eyes)
        text += eyes.text
    assert not {char for char in text if 0x2800 <= ord(char) < 0x2900 or char in "▁▂▃▅▆▇━╸▏"}
    assert re.search(r"3┤[ ·]*[▄█]+", text)
    assert "═" in text


async def test_no_state_is_told_by_its_colour_alone(still):
    """Of the strips, where there is least room: the signs alone tell free, working, foreign and unhealthy apart."""
    async with dashboard(BOARD["line"], (80, 12)) as eyes:
        await eyes.pilot.pause()
        text = eyes.text
    (line,) = [line for line in text.splitlines() if line.startswith("node1 ")]
    assert line.startswith("node1  · 94 95 96  ·  ·  ·  !   4/8 ")
    assert re.search(r"node2 93 94  ·  F ", text)


async def test_other_colours_show_the_same_texts(still):
    async with dashboard(BOARD["line"], (100, 30)) as eyes:
        await eyes.press("4")
        texts = set()
        for theme in ("textual-dark", "textual-light", "ansi-dark", "ansi-light"):
            eyes.app.theme = theme
            await eyes.pilot.pause()
            texts.add(eyes.text)
    assert len(texts) == 1
