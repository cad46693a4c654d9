"""`gpus --plot` and `usage --plot` as they are typed, on simulated nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from agentless import Cluster
from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.keyboard import at_terminal


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A task has run on two of the four GPUs of n1."""
    with inhabited(tmp_path_factory.mktemp("plots"), [NodePlan("n1", 4), NodePlan("n2", 1)]) as world:
        Cluster().submit("sleep", "4", target="n1::0,1", owner="ann").wait()
        yield world


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = ready.agentless(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done


def screen(*words: str, columns: int, env: dict[str, str]) -> str:
    """What stands on a terminal of so many columns."""
    with at_terminal(
        ["agentless", *words], {**os.environ, "AGENTLESS_PAGER": "cat", **env}, size=(columns, 24)
    ) as typed:
        typed.ended()
        return typed.shown()


def test_the_gpus_of_a_node_are_in_one_plot_and_a_gpu_alone_has_its_memory_beside_it(world):
    text = run("gpus", "--plot", "--since", "1min").stdout
    assert [line for line in text.splitlines() if "::" in line] == ["n1::0-3  Simulated A100", "n2::0  Simulated A100"]
    assert "GPU utilization  ━0 0%    ━1 0%" in text
    assert "GPU memory  ━0 0G" in text
    assert "Load  ━u utilization 0%    ━m memory 0%" in text
    assert text.count("now") == 3


def test_what_was_used_is_seen_to_a_pipe_without_colours(world):
    text = run("gpus", "--plot", "n1::0,1", "n2", "--since", "1min").stdout
    assert "n1::0,1  Simulated A100" in text
    assert "━2" not in text
    assert "\033" not in text
    curve = "".join(line[5:40] for line in text.splitlines() if line.startswith("100%"))
    assert any(0x2800 < ord(char) < 0x2900 for char in curve)


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_a_plot_is_as_wide_as_the_terminal(world, columns):
    for words in (("gpus", "--plot"), ("usage", "--plot", "--since", "1h")):
        text = screen(*words, columns=columns, env={"NO_COLOR": "1"})
        assert "\033[3" not in text
        assert max(len(line) for line in text.splitlines()) in (columns, columns - 1), text


def test_on_a_terminal_each_gpu_has_its_colour(world):
    text = screen("gpus", "n1", "--plot", columns=80, env={"TERM": "xterm-256color", "NO_COLOR": ""})
    for number, code in enumerate((36, 94, 33, 35)):
        assert f"\033[{code}m━{number} " in text


def test_a_script_gets_the_numbers(world):
    found = json.loads(run("gpus", "n1::1", "--plot", "--json").stdout)
    assert [(gpu["node"], gpu["number"]) for gpu in found["gpus"]] == [("n1", 1)]
    assert max(value or 0 for value in found["gpus"][0]["utilization_pct"]) > 0


def test_the_usage_is_plotted_as_gpus_at_a_time(world):
    text = run("usage", "--plot", "--since", "10min").stdout
    assert "GPUs allocated" in text
    assert text.splitlines()[0].split()[0] == "OWNER"
    assert re.search(r"^ +5┤", text, re.MULTILINE)


def test_gpus_takes_several_nodes_and_gpus(world):
    lines = [line.split()[:2] for line in run("gpus", "n2", "n1::0,2").stdout.splitlines()]
    assert lines == [["NODE", "GPU"], ["n2", "0"], ["n1", "0"], ["n1", "2"]]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("n1::9",), 1, "n1 has no GPU 9; to list its GPUs, run: agentless gpus n1"),
        (("--since", "1h"), 2, "--since is for --plot"),
        (("--plot", "--watch"), 2, "--plot and --watch cannot be combined"),
        (("--plot", "--since", "60d"), 2, "readings are kept for 30 days"),
        (("2x:40G",), 2, "is not a GPU"),
    ],
)
def test_what_cannot_be_plotted_is_said(world, words, code, why):
    assert why in run("gpus", *words, code=code).stderr
