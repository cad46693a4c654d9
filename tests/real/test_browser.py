"""What `agentless dashboard --web` serves, in a real browser, with an app that stands in for the dashboard."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import CHROMIUM, Tab, chromium
from tests.real.cli import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian's package chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """Printed by a server, whose app stands in for the dashboard."""
    command = (sys.executable, "-m", "tests.fleet.web_server", str(tmp_path), "2", "15")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield re.search(r"http://\S+", server.stdout.readline())[0]
        server.terminate()


@pytest.fixture
def tab(browser: Browser, link: str) -> Iterator[Tab]:
    tab = Tab(browser)
    tab.open(link)
    yield tab
    tab.page.context.close()


def test_what_the_app_shows_is_live(tab):
    first = int(tab.shows(r"counted (\d+)")[1])
    until(lambda: int(tab.shows(r"counted (\d+)")[1]) > first)


def test_a_key_reaches_the_app_without_a_click(tab):
    tab.page.keyboard.press("k")
    tab.shows("pressed k")


def test_the_app_fills_the_window(tab):
    tab.page.set_viewport_size({"width": 1800, "height": 900})
    columns, lines = tab.shows(r"a stand-in of (1[89]\d|2\d\d) by (\d+)").groups()
    assert int(columns) > 4 * int(lines)


def test_a_reload_opens_it_again(tab):
    tab.shows("counted")
    tab.open(tab.page.url)
    tab.shows("counted")


def test_what_the_app_hands_out_is_saved(tab):
    tab.shows("counted")
    with tab.page.expect_download() as download:
        tab.page.keyboard.press("d")
    assert download.value.suggested_filename == "task 1.log"
    assert Path(download.value.path()).read_text() == "what a task has said\n"


def test_an_app_that_has_ended_says_so_and_can_be_opened_again(tab):
    tab.shows("counted")
    tab.page.keyboard.press("q")
    tab.page.get_by_text("Open again").wait_for()
    assert tab.barriers() == []
    tab.page.get_by_text("Open again").click()
    tab.shows("counted")


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_forbidden(tab, link):
    tab.shows("counted")
    origin = link.partition("?")[0]
    assert [url for url in tab.asked if not url.startswith((origin, "data:"))] == []
    assert tab.complaints == []


def test_the_token_is_neither_in_the_address_nor_in_the_history(tab, link):
    tab.page.go_back()
    assert "token" not in tab.page.url


@pytest.mark.parametrize("path", ["", "?token=wrong"])
def test_without_the_token_there_is_nothing(browser, link, path):
    tab = Tab(browser)
    answer = tab.page.goto(link.partition("?")[0] + path)
    assert answer.status == 403
    assert tab.page.locator("body").inner_text().startswith("Access denied")


def test_the_address_of_the_page_opens_nothing_in_another_browser(browser, tab):
    other = Tab(browser)
    assert other.page.goto(tab.page.url).status == 403
