"""Every view of the dashboard as it looks over a cluster that was recorded once, and edited to have some trouble in it.

`AGENTLESS_WRITE=1 pytest tests/pure/test_dashboard_screens.py` draws the pictures anew, and with Chromium those of the
documentation; then look at them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from textual.pilot import Pilot

import agentless.client.words
from agentless.client.client import Client
from agentless.tui.app import SEEN, VIEWS, Dashboard
from agentless.tui.data.feed import Feed
from agentless.tui.data.incoming import Incoming
from tests.browser import ALONE, CHROMIUM

DATA = Path(__file__).parent / "data" / "dashboard"
RECORDED = json.loads((DATA / "board.json").read_text())
SIZES = [(80, 24), (160, 50)]
WRITES = bool(os.environ.get("AGENTLESS_WRITE"))
PICTURES = {"overview": ("1",), "gpus": ("2",), "tasks": ("4",), "vps": ("7",), "workflow": ("8", "enter")}
"""Of the documentation, with the keys that show them."""


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No controller is asked, and time stands still."""
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.setattr(Incoming, "tick", lambda _: None)
    monkeypatch.setattr(agentless.client.words.time, "time", lambda: RECORDED["line"]["now"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "agentless").mkdir()
    (tmp_path / "agentless" / SEEN).touch()


@contextlib.asynccontextmanager
async def recorded(size: tuple[int, int]) -> AsyncIterator[Pilot]:
    """A dashboard over the cluster that was recorded."""
    app = Dashboard(Client(Path("/nowhere"), None))
    async with app.run_test(size=size) as pilot:
        app.theme = "textual-dark"
        app.incoming.begin()
        for event in RECORDED["events"]:
            app.incoming.take_event(event)
        app.incoming.take(RECORDED["line"])
        yield pilot


async def picture_of(pilot: Pilot, *keys: str) -> str:
    """What it shows after these keys."""
    app = pilot.app
    if keys == ("7",):
        app.incoming.take({"tasks": RECORDED["vps"]})
    if keys[:1] == ("8",):
        workflow = RECORDED["workflow"]
        app.incoming.take({"workflows": [workflow, *RECORDED["workflows"]]})
        app.client.get = lambda path, **_: workflow if "workflows" in path else {"gpus": []}
    await pilot.press(*keys)
    for _ in range(3):
        await pilot.pause()
    return app.export_screenshot(title="agentless dashboard")


async def drawn(size: tuple[int, int], *keys: str) -> str:
    """The picture after these keys."""
    async with recorded(size) as pilot:
        return await picture_of(pilot, *keys)


def seen(picture: str) -> list[tuple[str, str, str, str]]:
    """What a picture shows: each text with its place and its colour, whatever else the file is made of."""
    colours = dict(re.findall(r"\.[\w-]+-(r\d+) \{ fill: (#\w+)", picture))
    texts = re.findall(r'<text class="[\w-]+-(r\d+)" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', picture)
    return [(x, y, text, colours[kind]) for kind, x, y, text in texts]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_each_view_looks_as_it_was_looked_at(still, size):
    async with recorded(size) as pilot:
        for view in sorted(VIEWS, key="vps".__eq__):  # the last one, since its tasks stay
            picture = await picture_of(pilot, str(list(VIEWS).index(view) + 1))
            kept = DATA / f"{view}-{size[0]}x{size[1]}.svg"
            if WRITES:
                kept.write_text(picture)
            assert seen(picture) == seen(kept.read_text()), view
            assert len(seen(picture)) > 20, view


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_workflow_looks_as_it_was_looked_at(still, size):
    picture = await drawn(size, "8", "enter")
    kept = DATA / f"workflow-{size[0]}x{size[1]}.svg"
    if WRITES:
        kept.write_text(picture)
    assert seen(picture) == seen(kept.read_text())


@pytest.mark.skipif(not (WRITES and CHROMIUM), reason="a picture of the documentation is drawn when it is asked for")
@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_of_the_documentation_is_drawn(still, tmp_path, name):
    (tmp_path / "picture.svg").write_text(await drawn((120, 36), *PICTURES[name]))
    await photographed(tmp_path / "picture.svg", Path(__file__).parents[2] / "docs" / "pictures" / f"{name}.png")


async def photographed(picture: Path, photograph: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        page = await browser.new_page(viewport={"width": 1500, "height": 950})
        await page.goto(picture.as_uri())
        photograph.parent.mkdir(exist_ok=True)
        await page.locator("svg").first.screenshot(path=photograph)
        await browser.close()


async def test_no_state_is_told_by_its_colour_alone(still):
    """Of the strips, where there is least room: the signs alone tell free, working, foreign and unhealthy apart."""
    app = Dashboard(Client(Path("/nowhere"), None))
    async with app.run_test(size=(80, 12)) as pilot:
        app.incoming.begin()
        app.incoming.take(RECORDED["line"])
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        (line,) = [line for line in text.splitlines() if line.startswith("node1 ")]
        assert line.startswith("node1  · 94 95 96  ·  ·  ·  !   4/8 ")
        assert re.search(r"node2 93 94  ·  F ", text)


async def test_other_colours_show_the_same_texts(still):
    async with recorded((100, 30)) as pilot:
        shown = {}
        for theme in ("textual-dark", "textual-light", "ansi-dark", "ansi-light"):
            pilot.app.theme = theme
            texts = "".join(text for *_, text, _ in seen(await picture_of(pilot, "4")))
            shown[theme] = texts.replace("&#160;", "")
    assert len(set(shown.values())) == 1, shown
