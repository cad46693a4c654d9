"""The dashboard in a real browser: headless Chromium opens the link that the terminal has printed.

The terminal of the page is drawn on a canvas. What a person reads there is read as he would copy it: marked with the
mouse, and copied.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.real.cli import until

CHROMIUM = shutil.which("chromium")
ALONE = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
COPIED = """() => {
    const copied = new DataTransfer();
    document.querySelector(".xterm").dispatchEvent(new ClipboardEvent("copy", {clipboardData: copied}));
    return copied.getData("text/plain");
}"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian's package chromium)")


class Tab:
    """A page of a browser that has nothing in common with others, and what it has asked for and complained of."""

    def __init__(self, browser: Browser) -> None:
        self.page: Page = browser.new_context().new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def open(self, link: str) -> None:
        self.page.goto(link)
        self.page.wait_for_selector("body.-first-byte")

    def text(self) -> str:
        mouse, screen = self.page.mouse, self.page.locator(".xterm-screen").bounding_box()
        right, bottom = screen["x"] + screen["width"], screen["y"] + screen["height"]
        self.page.keyboard.down("Shift")  # for the page, not for the app
        mouse.move(screen["x"] + 1, screen["y"] + 1)
        mouse.down()
        mouse.move(right - 2, bottom - 2)
        mouse.up()
        self.page.keyboard.up("Shift")
        return self.page.evaluate(COPIED)

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until this is to be read."""
        return until(lambda: re.search(pattern, self.text()))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        yield browser
        browser.close()


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """Printed by a server, whose app stands in for the dashboard."""
    command = (sys.executable, "-m", "tests.fleet.web_server", str(tmp_path), "2", "15")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield re.search(r"http://\S+", server.stdout.readline())[0]
        server.send_signal(signal.SIGINT)


@pytest.fixture
def tab(browser: Browser, link: str) -> Tab:
    tab = Tab(browser)
    tab.open(link)
    return tab


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
    tab.page.get_by_text("Open it again").click()
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
    assert tab.page.locator("body").inner_text().startswith("This dashboard is for the one who started it")


def test_the_address_of_the_page_opens_nothing_in_another_browser(browser, tab):
    other = Tab(browser)
    assert other.page.goto(tab.page.url).status == 403
