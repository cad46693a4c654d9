"""A real browser: headless Chromium.

The terminal of the page is drawn on a canvas. What a person reads there is read as he would copy it: marked with the
mouse, and copied.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.fleet.client import PATIENCE
from tests.real.cli import until

expect.set_options(timeout=1000 * PATIENCE)

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

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
CUT = """() => [document.documentElement, ...document.querySelectorAll("nav, button, p, h1")]
    .filter(each => each.clientWidth > 1 && each.scrollWidth > each.clientWidth)
    .map(each => `${each.tagName} ${each.textContent.trim().slice(0, 40)}`)"""


class Tab:
    """A page of a browser that has nothing in common with others, and what it has asked for and complained of."""

    def __init__(self, browser: Browser, **kind: Any) -> None:
        self.page: Page = browser.new_context(**kind).new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def open(self, link: str) -> None:
        self.page.goto(link)
        self.page.wait_for_selector("body.-first-byte")

    def text(self, *, key: str | None = "Shift") -> str:
        """What is to be read. Where the app has the mouse, a key gives it to the page."""
        mouse, screen = self.page.mouse, self.page.locator(".xterm-screen").bounding_box()
        right, bottom = screen["x"] + screen["width"], screen["y"] + screen["height"]
        with self._held(key) if key else contextlib.nullcontext():
            mouse.move(screen["x"] + 1, screen["y"] + 1)
            mouse.down()
            mouse.move(right - 2, bottom - 2)
            mouse.up()
        return self.page.evaluate(COPIED)

    def shows(self, pattern: str, *, key: str | None = "Shift") -> re.Match[str]:
        """Wait until this is to be read."""
        try:
            return until(lambda: re.search(pattern, self.text(key=key)))
        except AssertionError:
            raise AssertionError(f"{pattern!r} is not to be read in:\n{self.text(key=key)}") from None

    def barriers(self) -> list[tuple[str, list[str]]]:
        """What keeps some people from using the page, by WCAG 2.2 at levels A and AA; found by axe-core."""
        found = Axe().run(self.page, options={"runOnly": WCAG}).response
        checked = len(found["passes"])
        assert checked > 3  # it has looked
        return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]

    def cut(self) -> list[str]:
        """What is wider than its place, and the page itself if it can be scrolled sideways."""
        return self.page.evaluate(CUT)

    @contextlib.contextmanager
    def _held(self, key: str) -> Iterator[None]:
        self.page.keyboard.down(key)
        yield
        self.page.keyboard.up(key)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        yield browser
        browser.close()
