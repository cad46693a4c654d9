"""`agentless usage` as it is typed, on simulated nodes: a table, a chart on a terminal, and words for what is wrong.

So are the plots of `usage` and `gpus`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time

import pytest

from agentless import Cluster, UsageError
from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.keyboard import at_terminal
from tests.pauses import pauses


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two tasks have ended: ann's on four GPUs, bob's on one."""
    with inhabited(tmp_path_factory.mktemp("usage"), [NodePlan("n1", 4), NodePlan("n2", 1)]) as world:
        ours = Cluster()
        works = ours.submit("sleep", "600", target="n1::0-3", owner="ann")
        seen(ours, used=True)
        works.stop()
        seen(ours, used=False)
        ours.submit("true", target="n2::0", owner="bob").wait()
        yield world


def seen(ours: Cluster, *, used: bool) -> None:
    """Wait until all GPUs of n1 are seen in use, or not."""
    for pause in pauses():
        if all(bool(gpu.utilization_pct) is used for gpu in ours.gpus("n1")):
            return
        time.sleep(pause)


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


# ------------------------------------------------------------------------------- plots


def typed(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = ready.agentless(*words)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done


def plotted(*words: str, columns: int, env: dict[str, str]) -> str:
    """What stands on a terminal of so many columns."""
    with at_terminal(
        ["agentless", *words], {**os.environ, "AGENTLESS_PAGER": "cat", **env}, size=(columns, 24)
    ) as keyboard:
        keyboard.ended()
        return keyboard.shown()


def test_the_gpus_of_a_node_have_a_line_each_and_a_gpu_alone_has_its_memory_beside_it(world):
    text = typed("gpus", "--plot", "--since", "1min").stdout
    assert [line for line in text.splitlines() if "::" in line] == ["n1::0-3  Simulated A100", "n2::0  Simulated A100"]
    assert re.search(r"^GPU utilization  each 0 to 100%", text, re.MULTILINE)
    assert [line.split("┤")[0].strip() for line in text.splitlines() if "0%" in line and "┤" in line][:4] == [*"0123"]
    assert "Load  ━u utilization 0%    ━m memory 0%" in text
    assert text.count("now") == 3


def test_what_was_used_is_seen_to_a_pipe_without_colours(world):
    text = typed("gpus", "--plot", "n1::0,1", "n2", "--since", "1min").stdout
    assert "n1::0,1  Simulated A100" in text
    assert "2┤" not in text
    assert "\033" not in text
    assert any(0x2800 < ord(char) < 0x2900 for char in text)


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_a_plot_is_as_wide_as_the_terminal(world, columns):
    for words in (("gpus", "--plot"), ("usage", "--plot", "--since", "1h")):
        text = plotted(*words, columns=columns, env={"NO_COLOR": "1"})
        assert "\033[3" not in text
        assert max(len(line) for line in text.splitlines()) in (columns, columns - 1), text


def test_on_a_terminal_each_number_has_its_colour(world):
    text = plotted("gpus", "n1", "--plot", columns=80, env={"TERM": "xterm-256color", "NO_COLOR": ""})
    for code in (36, 94):
        assert re.search(rf"\033\[(2;)?{code}m[▁-█\u2800-\u28ff]", text)


def test_a_script_gets_the_numbers(world):
    found = json.loads(typed("gpus", "n1::1", "--plot", "--json").stdout)
    assert [(gpu["node"], gpu["number"]) for gpu in found["gpus"]] == [("n1", 1)]
    assert max(value or 0 for value in found["gpus"][0]["utilization_pct"]) > 0


def test_the_usage_is_plotted_as_gpus_at_a_time(world):
    text = typed("usage", "--plot", "--since", "10min").stdout
    assert "GPUs allocated" in text
    assert text.splitlines()[0].split()[0] == "OWNER"
    assert re.search(r"^ +5┤", text, re.MULTILINE)


def test_gpus_takes_several_nodes_and_gpus(world):
    lines = [line.split()[:2] for line in typed("gpus", "n2", "n1::0,2").stdout.splitlines()]
    assert lines == [["NODE", "GPU"], ["n2", "0"], ["n1", "0"], ["n1", "2"]]


def test_a_screen_reader_gets_a_sentence_for_each_gpu(world):
    lines = typed("gpus", "n2", "n1::0", "--plain").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("n2 GPU 0, Simulated A100, is ")
    for line in lines:
        assert line.isascii()
        assert re.search(r"\. Utilization \d+ percent, memory [\d.]+ \w+ of \d+ GiB, \d+ degrees, \d+ watts\.$", line)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("n1::9",), "n1 has no GPU 9; to list its GPUs, run: agentless gpus n1"),
        (("--since", "1h"), "--since is for --plot"),
        (("--plot", "--watch"), "--plot and --watch cannot be combined"),
        (("--plain", "--plot"), "--plain cannot be combined with --plot"),
        (("--plot", "--since", "60d"), "readings are kept for 30 days"),
        (("2x:40G",), "is not a GPU"),
    ],
)
def test_what_cannot_be_plotted_is_said(world, words, why):
    assert why in typed("gpus", *words, code=2).stderr
