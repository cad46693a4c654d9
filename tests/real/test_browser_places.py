"""The dashboard itself in a real browser, over recorded rows: addresses, sizes, copying, touch, a lost connection."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import CHROMIUM, Tab, chromium
from tests.real.cli import until
from tests.tunnel import tunnel

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian's package chromium)")

LINK = re.compile(r"http://\S+")
PHONE = {"viewport": {"width": 420, "height": 900}, "has_touch": True, "is_mobile": True}
WINDOW = {"viewport": {"width": 1280, "height": 800}}
SIZES = [(420, 900), (1280, 800), (1920, 1080)]
CLIPBOARD = ["clipboard-read", "clipboard-write"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def new_link(tmp_path_factory) -> Iterator[Callable[[], str]]:
    """Another link to a server whose app is the dashboard over recorded rows."""
    folder = str(tmp_path_factory.mktemp("apps"))
    command = (sys.executable, "-m", "tests.fleet.web_server", folder, "8", "15", "tests.fleet.web_dashboard")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def link() -> str:
            server.stdin.write("\n")
            server.stdin.flush()
            while not (found := LINK.search(line := server.stdout.readline())) or "New link" not in line:
                pass
            return found[0]

        yield link
        server.terminate()


class Visitor(Tab):
    """Someone who has come in."""

    def __init__(self, browser: Browser, link: str, **kind: object) -> None:
        super().__init__(browser, **kind)
        self.root = self.page.request.get(link).url  # the cookie is the page's, too

    def at(self, path: str, title: str) -> None:
        """Wait for an address and its title."""
        expect(self.page).to_have_url(self.root + path)
        expect(self.page).to_have_title(re.compile(title))

    def go(self, path: str, title: str) -> None:
        """Type an address."""
        self.page.goto(self.root + path)
        self.at(path, title)


@pytest.fixture
def visit(browser, new_link) -> Iterator[Callable[..., Visitor]]:
    visitors: list[Visitor] = []

    def visit(**kind: object) -> Visitor:
        visitors.append(Visitor(browser, new_link(), **kind))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.page.context.close()


def test_an_address_opens_its_place_and_follows_the_app_and_the_back_button_leads_it(visit):
    visitor = visit(**WINDOW)
    visitor.go("nodes/node2", "Node node2 · agentless")
    visitor.page.keyboard.press("Escape")
    visitor.at("nodes", "Nodes")
    visitor.page.keyboard.press("5")
    visitor.at("queue", "Queue")
    visitor.page.go_back()
    visitor.at("nodes", "Nodes")
    visitor.page.go_back()
    visitor.at("nodes/node2", "Node node2")
    visitor.shows("node2 +online")
    visitor.page.reload()
    visitor.at("nodes/node2", "1 problem · Node node2 · agentless")
    visitor.shows("node2 +online")
    assert visitor.barriers() == []
    for width, height in SIZES:
        visitor.page.set_viewport_size({"width": width, "height": height})
        assert visitor.cut() == [], width
    assert visitor.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("path", ["nowhere", "nodes/node9", "tasks/x/y/z", "%E2%80%AE", "nodes/" + "n" * 600])
def test_an_address_of_nothing_opens_the_overview_with_a_sentence(visit, path):
    visitor = visit(**WINDOW)
    visitor.page.goto(visitor.root + path)
    visitor.at("", "Overview")
    visitor.shows("Not found: /")


@pytest.mark.slow
def test_back_closes_a_dialog_and_keeps_the_address(visit):
    visitor = visit(**WINDOW)
    visitor.go("nodes", "Nodes")
    visitor.page.keyboard.press("4")
    visitor.at("tasks", "Tasks")
    visitor.page.keyboard.press("?")
    visitor.shows("show details of the selected row")
    visitor.page.go_back()
    visitor.at("tasks", "Tasks")
    visitor.page.go_back()
    visitor.at("nodes", "Nodes")


@pytest.mark.slow
def test_a_key_copies_the_chosen_row(visit):
    visitor = visit(**WINDOW, permissions=CLIPBOARD)
    visitor.go("nodes", "Nodes")
    visitor.page.keyboard.press("y")
    expect(visitor.page.get_by_role("status")).to_have_text("Copied")
    assert visitor.page.evaluate("navigator.clipboard.readText()").startswith("node1\tonline")


@pytest.mark.slow
def test_marked_text_is_copied_by_ctrl_c_which_does_not_quit_then(visit):
    visitor = visit(**WINDOW, permissions=CLIPBOARD)
    visitor.go("nodes", "Nodes")
    visitor.shows("node2")
    visitor.page.keyboard.press("Control+c")
    visitor.page.wait_for_function("async () => (await navigator.clipboard.readText()).includes('node2')")
    visitor.page.keyboard.press("2")
    visitor.at("gpus", "GPUs")


def cut_lines(visitor: Visitor) -> list[str]:
    """What is on the page, if the names of all views on top and the key of the help at the bottom are not."""
    lines = visitor.text().splitlines()
    return [] if "1 Overview" in lines[0] and lines[-1].rstrip().endswith("? Keys") else lines


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_app_has_the_whole_window_and_nothing_is_cut(visit, width, height):
    visitor = visit(viewport={"width": width, "height": height})
    visitor.go("", "problem")
    visitor.shows(r"\? Keys")
    screen = visitor.page.locator(".xterm-screen").bounding_box()
    assert width - 16 < screen["x"] + screen["width"] <= width
    assert height - 24 < screen["y"] + screen["height"] <= height
    assert cut_lines(visitor) == []
    assert visitor.cut() == []


@pytest.mark.slow
def test_a_phone_has_fifty_columns_and_keys_to_tap(visit):
    visitor = visit(**PHONE)
    visitor.go("", "problem")
    visitor.shows(r"Details .*\? Keys")  # before anything is tapped
    visitor.page.get_by_role("button", name="Tab").tap()
    visitor.at("gpus", "GPUs")
    visitor.shows(r"\? Keys")
    assert 50 <= max(map(len, visitor.text().splitlines())) <= 54
    terminal, keys = (visitor.page.locator(name).bounding_box() for name in (".xterm-screen", "nav"))
    assert terminal["y"] + terminal["height"] <= keys["y"]
    assert keys["y"] + keys["height"] <= PHONE["viewport"]["height"]
    assert visitor.cut() == []
    assert visitor.barriers() == []


def swipe(visitor: Visitor, x: int, begin: int, end: int) -> None:
    """A finger moves up or down."""
    touch = visitor.page.context.new_cdp_session(visitor.page)
    for at in range(9):
        point = {"x": x, "y": begin + (end - begin) * at / 8}
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove" if at else "touchStart", "touchPoints": [point]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.slow
def test_on_a_phone_a_tap_chooses_a_swipe_scrolls_and_no_keyboard_opens(visit):
    visitor = visit(**PHONE)
    visitor.go("nodes", "Nodes")
    visitor.shows("node3")
    row = visitor.page.locator(".xterm-screen").bounding_box()["height"] / len(visitor.text().splitlines())
    visitor.page.touchscreen.tap(40, row * 4.5)  # the second node
    visitor.page.get_by_role("button", name="Enter").tap()
    visitor.at("nodes/node2", "Node node2")
    visitor.page.get_by_role("button", name="Commands").tap()
    visitor.page.get_by_role("button", name="Esc").tap()
    assert visitor.page.locator("textarea").get_attribute("inputmode") == "none"
    visitor.page.get_by_role("button", name="Type").tap()
    assert visitor.page.locator("textarea").get_attribute("inputmode") == "text"
    visitor.go("", "problem")
    visitor.shows("Problems 1")
    swipe(visitor, 200, 700, 400)
    visitor.shows("Exited: completed")


@pytest.mark.slow
def test_on_a_phone_a_finger_marks_text_that_is_copied(visit):
    visitor = visit(**PHONE, permissions=CLIPBOARD)
    visitor.go("nodes", "Nodes")
    visitor.shows("node2")
    visitor.page.get_by_role("button", name="Select").tap()
    swipe(visitor, 10, 50, 110)
    expect(visitor.page.get_by_role("status")).to_have_text("Copied")
    assert "node1" in visitor.page.evaluate("navigator.clipboard.readText()")


@pytest.mark.slow
def test_the_text_gets_larger_and_smaller_by_keys(visit):
    visitor = visit(**WINDOW)
    visitor.go("", "problem")

    def columns() -> int:
        return max(map(len, visitor.text().splitlines()))

    visitor.shows(r"\? Keys")
    before = columns()
    for _ in range(4):
        visitor.page.keyboard.press("Control+=")
    until(lambda: columns() < before - 20)
    visitor.page.keyboard.press("Control+0")
    until(lambda: columns() == before)


@pytest.mark.slow
def test_a_lost_connection_comes_back_at_the_same_place_and_says_so(browser, new_link):
    link = new_link()
    port = int(re.search(r":(\d+)/", link)[1])
    with tunnel(port) as through:
        visitor = Visitor(browser, link.replace(f":{port}/", f":{through.port}/"), **WINDOW)
        visitor.go("nodes/node2", "Node node2")
        visitor.shows("node2 +online")
        through.cut()
        expect(visitor.page.get_by_role("status")).to_have_text("Connection lost. Reconnecting …")
        through.open()
        expect(visitor.page.get_by_role("status")).to_contain_text("Reconnected")
        visitor.shows("node2 +online")
        visitor.at("nodes/node2", "Node node2")
        visitor.page.context.close()


@pytest.mark.slow
def test_a_page_that_hears_nothing_when_it_is_looked_at_again_reconnects(browser, tmp_path):
    command = (sys.executable, "-m", "tests.fleet.web_server", str(tmp_path), "8", "15", "tests.fleet.web_dashboard")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        visitor = Visitor(browser, LINK.search(server.stdout.readline())[0], **WINDOW)
        visitor.go("nodes/node2", "Node node2")
        visitor.shows("node2 +online")
        server.send_signal(signal.SIGSTOP)
        visitor.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(visitor.page.get_by_role("status")).to_have_text("Connection lost. Reconnecting …")
        server.send_signal(signal.SIGCONT)
        expect(visitor.page.get_by_role("status")).to_contain_text("Reconnected")
        visitor.shows("node2 +online")
        visitor.at("nodes/node2", "Node node2")
        visitor.page.context.close()
        server.terminate()
