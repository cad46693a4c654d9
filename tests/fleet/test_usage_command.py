"""`agentless usage` as it is typed, on simulated nodes: a table, a chart on a terminal, and words for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from agentless import Cluster, UsageError
from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.keyboard import at_terminal


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two tasks have ended: ann's on four GPUs, bob's on one."""
    with inhabited(tmp_path_factory.mktemp("usage"), [NodePlan("n1", 4), NodePlan("n2", 1)]) as world:
        ours = Cluster()
        ours.submit("sleep", "2", target="n1::0-3", owner="ann").wait()
        ours.submit("true", target="n2::0", owner="bob").wait()
        yield world


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = ready.agentless("usage", *words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done


def screen(*words: str, columns: int) -> list[str]:
    """What stands on a terminal of so many columns, without the colours."""
    env = {**os.environ, "NO_COLOR": "1"}
    with at_terminal(["agentless", "usage", *words], env, size=(columns, 24)) as keyboard:
        keyboard.ended()
        return keyboard.shown().splitlines()


def test_to_a_pipe_there_is_the_table_and_nothing_else(world):
    done = run()
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["OWNER", "ann", "bob"]
    assert "of 5 GPUs" in done.stderr


@pytest.mark.parametrize(("by", "names"), [("node", {"n1", "n2"}), ("owner", {"ann", "bob"})])
def test_the_lines_are_of_what_is_asked_for(world, by, names):
    assert {line.split()[0] for line in run("--by", by).stdout.splitlines()[1:]} == names


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_on_a_terminal_of_any_width_there_is_a_chart_that_fits(world, columns):
    lines = screen(columns=columns)
    assert "GPU-hours per day" in lines
    assert [line for line in lines if len(line) > columns] == []
    assert sum("█" in line for line in lines) == 1
    assert len(lines[lines.index("GPU-hours per day") + 1 :]) in (8, 9)


def test_a_short_span_is_shown_by_the_hour(world):
    assert "GPU-hours per hour" in screen("--since", "3h", columns=80)


def test_json_has_the_documented_fields(world):
    found = json.loads(run("--json", "--since", "1h", "--by", "batch").stdout)
    assert found["by"] == "batch"
    assert found["total"]["tasks"] == sum(row["tasks"] for row in found["rows"]) == 2
    assert found["rows"][0]["gpu_hours"] >= found["rows"][1]["gpu_hours"]


def test_a_span_in_which_nothing_ran_says_so(world):
    done = run("--since", "1ms")
    assert (done.stdout, done.stderr) == ("", "No tasks ran since then\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "gpu"), "--by 'gpu': use one of owner, node, batch"),
        (("--since", "soon"), "--since 'soon': use 10min, 2h or a date like"),
        (("--since", "2999-01-01"), "must end before now"),
        (("--since", "1999-01-01"), "at most 15 years long"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_meant_is_said_in_words(world, words, said):
    assert said in run(*words, code=2).stderr


def test_python_has_the_same(world):
    found = Cluster().usage("1h", by="owner")
    assert {row.name: row.tasks for row in found.rows} == {"ann": 1, "bob": 1}
    assert (found.gpus, found.total.tasks) == (5, 2)
    with pytest.raises(UsageError, match="before now"):
        Cluster().usage(9e9)
