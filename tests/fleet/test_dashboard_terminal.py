"""The dashboard as a program in a terminal, over simulated nodes."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import IMAGE
from tests.fleet.inhabited import inhabited
from tests.fleet.world import World
from tests.tmux import Tmux

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    with inhabited(tmp_path, [NodePlan("n1", 2)]) as world:
        Client.found(None).get("/v1/controller")  # which starts it: a program would take ten times as long
        yield world


@pytest.fixture
def tmux(world, tmp_path) -> Iterator[Tmux]:
    with Tmux(tmp_path, {}) as tmux:
        yield tmux


def test_a_task_is_submitted_looked_at_and_stopped_by_keys_alone(world, tmux):
    tmux.agentless("dashboard")
    tmux.see("n1 online", "2 free")
    tmux.press("n")
    tmux.see("Command")
    tmux.press("sh -c 'trap exit TERM; echo hello; sleep 600 & wait'", "Tab", IMAGE)
    tmux.see("would start now, on n1::0")
    tmux.press("C-s")
    tmux.see("running", "n1::0")
    (container,) = world.containers()
    assert container.live
    tmux.press("l")
    tmux.see("hello", "Following")
    tmux.press("q", "T")
    tmux.see("Stop task", "SIGKILL")
    tmux.press("y")
    tmux.see("stopped")
    assert not world.containers()[0].live


def test_it_leaves_the_terminal_as_it_was(world, tmux):
    tmux.run("stty", "-a")
    tmux.see("extproc")  # its last word
    before = tmux.text
    tmux.agentless("dashboard")
    tmux.see("n1 online")
    tmux.press("q")
    tmux.see("ready$")
    assert before.splitlines()[:3] == tmux.text.splitlines()[:3]
    tmux.run("clear")
    tmux.run("stty", "-a")
    tmux.see("speed", "isig icanon iexten echo echoe")


def test_it_says_what_it_needs_where_there_is_no_terminal(world, tmux):
    tmux.press(f"{shlex.join([sys.executable, '-m', 'agentless', 'dashboard'])} | cat", "Enter")
    tmux.see("a dashboard needs a terminal")


@pytest.mark.slow
@pytest.mark.parametrize("complaints", ["2>&-", "2>/dev/full", "2>complaints"])
def test_it_is_on_the_terminal_wherever_complaints_go(world, tmux, complaints):
    tmux.press(f"{shlex.join([sys.executable, '-m', 'agentless', 'dashboard'])} {complaints}", "Enter")
    tmux.see("n1 online")
    tmux.press("q")
    tmux.see("ready$")


@pytest.mark.slow
@pytest.mark.parametrize("start", ["NO_COLOR=1", "TERM=vt100", "TERM=linux"])
def test_on_a_terminal_with_few_colours_or_none_it_uses_no_others(world, tmux, start):
    """None from a palette of 256 or of 16 million, as tmux writes the screen down; without colours none at all."""
    tmux.press(f"{start} {shlex.join([sys.executable, '-m', 'agentless', 'dashboard'])}", "Enter")
    tmux.see("n1 online")
    codes = {code for found in re.findall("\x1b\\[([0-9;]*)m", tmux.painted) for code in found.split(";")}
    assert not codes & {"38", "48"}
    assert bool(codes & {"32", "36"}) == (start == "TERM=linux")
    tmux.press("q")
    tmux.see("ready$")


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["q", "C-c"])
def test_top_shows_all_gpus_until_a_key_and_so_does_gpus_watch(world, tmux, keys):
    Client.found(None).get("/v1/nodes")
    tmux.agentless("top")
    tmux.see("n1 online")
    tmux.press(keys)
    tmux.see("ready$")
    tmux.agentless("gpus", "--watch")
    tmux.see("MODEL", "Simulated A100", "free")
    tmux.press("C-c")
    tmux.see("ready$")
    assert "MODEL" not in tmux.text


@pytest.mark.slow
def test_it_has_another_size_when_the_window_has(world, tmux):
    tmux.agentless("dashboard")
    tmux.see("n1 online")
    tmux.resize(60, 15)
    tmux.see("n1 online")
    tmux.resize(140, 40)
    tmux.see("n1 online", "No tasks. To submit one")


@pytest.mark.slow
def test_a_shell_has_the_whole_terminal_until_it_ends(world, tmux):
    tmux.agentless("submit", "n1::0", "--name", "bold", "--", "sleep", "600")
    tmux.agentless("dashboard")
    tmux.see("n1 online")
    tmux.press("4", "s")
    tmux.see("Shell in task", "type exit to return")
    assert "n1 online" not in tmux.text
    tmux.press("stty size; echo $((40 + 2))", "Enter")
    tmux.see("36 110", "\n42\n")
    tmux.resize(90, 30)
    tmux.press("until stty size | grep 90; do sleep 0.1; done", "Enter")
    tmux.see("30 90")
    tmux.press("exit 3", "Enter")
    tmux.see("Overview", "bold", "running")  # the task goes on, and so does the dashboard, in its new size
    tmux.press("s")
    tmux.see("Shell in task")
    tmux.press("C-d")
    tmux.see("Overview", "bold", "running")
    tmux.press("q")
    tmux.see("ready$")
