"""The dashboard over real nodes, in a terminal and in a browser: from the form to a container, and to its end."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Tab, chromium
from tests.real.cli import until
from tests.tmux import Tmux

needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (Debian's package chromium)")


@pytest.fixture
def tmux(agentless, tmp_path) -> Iterator[Tmux]:
    with Tmux(tmp_path, agentless.env) as tmux:
        yield tmux


@pytest.fixture
def link(agentless) -> Iterator[str]:
    """What `agentless dashboard --web` has printed."""
    with agentless.start("dashboard", "--web") as server:
        yield re.search(r"http://\S+", server.stdout.readline())[0]
        server.send_signal(signal.SIGINT)


def containers(node) -> list[str]:
    """The names of those that run."""
    return node.sh("docker ps --format '{{.Names}}'").stdout.split()


def hostname(node, task) -> str:
    """Of its container."""
    return node.sh(f"docker inspect -f '{{{{.Config.Hostname}}}}' agentless-{task['id']}").stdout.strip()


@pytest.mark.slow
@needs_tmux
def test_in_a_terminal_a_task_is_submitted_from_the_form_entered_and_stopped(agentless, node, tmux):
    tmux.agentless("dashboard")
    tmux.see("node1 online", "node2 online")
    tmux.press("n")
    tmux.see("Command")
    tmux.press("sh -c 'trap exit TERM; echo hello; sleep 600 & wait'")
    tmux.see("would start now, on node1::0")
    tmux.press("C-s")
    tmux.see("running", "node1::0")
    (task,) = agentless.json("ps")
    assert containers(node) == [f"agentless-{task['id']}"]
    tmux.press("l")
    tmux.see("hello", "Following")
    tmux.press("q", "s")
    tmux.see("type exit to return")
    tmux.press("echo in $(cat /etc/hostname)", "Enter")
    tmux.see(f"in {hostname(node, task)}")
    tmux.press("exit", "Enter")
    tmux.see("Overview", "running")
    tmux.press("T")
    tmux.see("Stop task")
    tmux.press("y")
    tmux.see("stopped")
    until(lambda: containers(node) == [])


@pytest.mark.slow
@needs_tmux
def test_in_a_terminal_a_log_is_read_at_a_time_while_it_grows_and_by_pages_once_it_is_kept(agentless, tmux):
    script = "printf '10%%\\r50%%\\r\\033[32mready\\033[0m\\n'; seq 1 5000; sleep 600"
    task = agentless.submit("node1", "--", "sh", "-c", script)
    until(lambda: "5000" in agentless("logs", "--tail", "1", task).out, 60)
    tmux.agentless("dashboard")
    tmux.see("node1 online")
    tmux.press("4")
    tmux.see(task, "running")
    tmux.press("l")
    tmux.see("5,001 lines", "Following", "4999")
    tmux.press("J")
    tmux.see("Go to a line: 1200, or a percentage: 40%, or a time")
    tmux.press("1h", "Enter")
    tmux.see("1-", "of 5,001 lines", "Paused", "ready")
    tmux.press("q")
    agentless("kill", task)
    until(lambda: agentless.json("show", task)["state"] == "killed", 60)
    until(lambda: any(agentless.state.glob(f"logs/{task}*.log")), 60)
    tmux.see("killed")
    tmux.press("l")
    tmux.see("5,001 lines", "No more output")
    tmux.press("/")
    tmux.see("Search for")
    tmux.press("4321", "Enter")
    tmux.see("4320", "4322", "of 5,001 lines")


@pytest.mark.slow
@needs_chromium
def test_in_a_browser_a_task_is_submitted_followed_entered_and_stopped(agentless, node, link):
    with chromium() as browser:
        tab = Tab(browser)
        keys = tab.page.keyboard
        tab.open(link)
        tab.shows("node1 online")

        keys.press("n")
        tab.shows("Command")
        keys.type("sh -c 'i=0; while :; do echo line $((i += 1)); sleep 0.2; done'")
        tab.shows("would start now, on node1::0")
        keys.press("Control+s")
        tab.shows(r"running +node1::0")
        (task,) = agentless.json("ps")
        assert containers(node) == [f"agentless-{task['id']}"]

        keys.press("l")
        first = int(tab.shows(r"line (\d+)")[1])
        tab.shows(rf"line {first + 10}\b")
        assert tab.page.url.endswith(f"/tasks/{task['id']}/log")
        tab.page.reload()
        tab.shows(rf"line {first + 20}\b")
        with tab.page.expect_download() as download:
            keys.press("X")
        assert download.value.suggested_filename == f"{task['id']}.log"
        assert Path(download.value.path()).read_text().startswith("line 1\nline 2\n")
        keys.press("q")

        keys.press("s")
        until(lambda: "agentless shell" in agentless("events").out)
        until(lambda: "docker exec" in " ".join(command for _, command in node.leftovers()))
        tab.shows("/ # ", key=None)
        keys.type("\n")  # a late resize can break into BusyBox's question for the cursor: what is left is typed text
        keys.type("echo in $(cat /etc/hostname)\n")
        tab.shows(rf"\nin {hostname(node, task)}", key=None)
        keys.type("exit\n")
        tab.shows("Overview")

        keys.press("T")
        tab.shows("Stop task")
        keys.press("y")
        until(lambda: agentless.task(task["id"])["state"] == "stopped")
        assert containers(node) == []
        assert tab.complaints == []


@pytest.mark.slow
@needs_chromium
def test_in_a_browser_there_is_nothing_without_the_token(link):
    with chromium() as browser:
        tab = Tab(browser)
        assert tab.page.goto(link.partition("?")[0]).status == 403
        assert "node1" not in tab.page.locator("body").inner_text()
