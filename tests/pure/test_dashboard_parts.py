"""The parts of the dashboard that need no screen: what is known, how it looks, what is painted, what may be done."""

from __future__ import annotations

import itertools
import json
from collections import deque
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from agentless.client.words import gpu_number
from agentless.model.tasks.task import LIVE, STATES
from agentless.rules.views.publish import timestamp
from agentless.tui.data.actions import ACTIONS, Target, applies
from agentless.tui.data.cluster import STEP, TREND, ClusterState, natural
from agentless.tui.screens.overview.gpu import METRICS, legend
from agentless.tui.screens.overview.node import NodePainter
from agentless.tui.widgets import look
from agentless.tui.widgets.hanging import hung
from agentless.tui.widgets.lines import Piece, _differences, fitted, folded

RECORDED = json.loads((Path(__file__).parent / "data" / "dashboard" / "board.json").read_text())["line"]


def cluster() -> ClusterState:
    known = ClusterState()
    known.apply(json.loads(json.dumps(RECORDED)))
    return known


# ------------------------------------------------------------------------------- cluster


def test_a_line_replaces_the_rows_it_has_and_leaves_the_others():
    known = cluster()
    before = dict(known.gpus)
    key, gpu = next(iter(before.items()))
    assert known.apply({"now": 1.0, "gpus": [{**gpu, "utilization_pct": 55}]}) == {"gpus"}
    assert known.gpus[key]["utilization_pct"] == 55
    assert {k: v for k, v in known.gpus.items() if k != key} == {k: v for k, v in before.items() if k != key}


def test_a_gpu_without_a_number_has_its_index():
    assert [gpu_number({"index": 3, **more}) for more in ({}, {"number": None}, {"number": 0})] == [3, 3, 0]


def test_what_is_gone_is_not_known_any_more():
    known = cluster()
    node, uuid = next(iter(known.gpus))
    task = next(iter(known.tasks))
    gone = [["gpus", node, uuid], ["tasks", task], ["nodes", node]]
    assert known.apply({"now": 1.0, "gone": gone}) == {"gpus", "tasks", "nodes"}
    assert (node, uuid) not in known.gpus
    assert task not in known.tasks
    assert node not in known.nodes


def test_nodes_are_in_the_order_in_which_a_person_counts():
    assert sorted(["node10", "node2", "a", "node2b"], key=natural) == ["a", "node2", "node2b", "node10"]


def test_the_frame_of_a_node_has_the_same_width_above_and_below():
    known = cluster()
    painter = NodePainter(known)
    for name, width in itertools.product(known.nodes, range(20, 130)):
        edges = painter.top(name, known.gpus_of(name), width), painter.bottom(width, "utilization")
        assert [sum(cell_len(text) for text, _ in edge) for edge in edges] == [width, width]


def test_a_trend_begins_with_what_was_kept_and_goes_on_with_what_comes():
    known = cluster()
    (key, gpu), *_ = known.gpus.items()
    known.sampled()
    kept = {"node": key[0], "uuid": key[1], "utilization_pct": [*range(TREND - 1), 77]}
    known.remember({"gpus": [kept]})
    now = gpu["utilization_pct"]
    assert known.trend(gpu) == [*range(TREND - 1), now]
    known.now += STEP
    known.sampled()
    assert known.trend(gpu) == [*range(1, TREND - 1), now, now]


def test_a_trend_is_as_long_however_often_samples_come():
    known = cluster()
    (_, gpu), *_ = known.gpus.items()
    begin = known.now = known.now // STEP * STEP
    for seconds, load in ((0, 10), (1, 20), (2, 60), (3 * STEP, 50), (4 * STEP, None), (4 * STEP + 1, 40)):
        gpu["utilization_pct"], known.now = load, begin + seconds
        known.sampled()
    assert known.trend(gpu) == [*[None] * (TREND - 5), 30, None, None, 50, 40]


def test_a_trend_outlasts_a_connection_that_is_lost_for_less_than_a_sample():
    known, key = cluster(), next(iter(cluster().gpus))
    line = {"now": known.now, "gpus": [*known.gpus.values()]}
    known.sampled()
    known.clear()
    known.apply(line)
    known.remember({"gpus": [{"node": key[0], "uuid": key[1], "utilization_pct": [*range(TREND)]}]})
    known.now += 1
    known.sampled()
    assert known.trend(known.gpus[key])[:-1] == [*range(1, TREND)]


def test_the_queue_is_those_who_are_next_then_those_for_later():
    known = ClusterState()
    rows = [("c", "pending", 2, None), ("a", "scheduled", None, "2026-01-02"), ("b", "pending", 1, None)]
    rows.append(("d", "scheduled", None, "2026-01-01"))
    for name, state, position, later in rows:
        known.tasks[name] = {"id": name, "state": state, "position": position, "scheduled_for": later}
    assert [task["id"] for task in known.queue()] == ["b", "c", "d", "a"]


def test_what_is_wrong_is_named_once():
    known = cluster()
    ((about, words),) = known.problems()
    assert about == "node1::7"
    assert words.endswith("; when repaired: agentless nodes resume node1 --gpu 7")
    known.nodes["node1"] = {**known.nodes["node1"], "state": "offline", "reason": "no answer"}
    assert known.problems() == [("node1", "offline: no answer")]


def test_each_problem_says_what_to_do():
    known = cluster()
    (gpu,) = (gpu for gpu in known.gpus.values() if gpu["state"] == "unhealthy")
    gpu.update(state="unknown", reason="cannot read its memory")
    task = next(task for task in known.tasks.values() if task["state"] == "running")
    intruder = {"user": "root", "pid": 7, "command": "python", "name": "python", "memory_mib": None}
    task.update(intruders=[intruder], idle_since="2026-01-01T00:00:00Z", reason="idle for 45m 0s")
    assert [words.rpartition("; ")[2] for _, words in known.problems()] == [
        "to see why: agentless doctor node1",
        f"to end that, on {task['node']}: kill 7",
        f"to free its GPUs: agentless stop {task['id']}",
    ]


# -------------------------------------------------------------------------------- look


@given(st.floats(0, 1), st.integers(1, 60), st.booleans())
def test_a_bar_is_as_wide_as_it_should_be_and_as_long_as_its_share(share, width, thin):
    (filled, _), (rest, _) = look.bar(share, width, "good", thin=thin)
    assert not set(filled) & set(rest)  # to be told apart without colors
    assert len(filled) + len(rest) == width
    assert abs(len(filled) - share * width) <= 1


@given(st.floats(0, 1), st.integers(2, 60), st.booleans())
def test_an_alarm_has_a_sign_at_its_end_and_a_colour_and_is_as_wide(share, width, thin):
    pieces = look.bar(share, width, "good", thin=thin, alarm=True)
    text = "".join(text for text, _ in pieces)
    assert len(text) == width
    assert text[-1] == "!"
    assert "good" not in {style for _, style in pieces}
    assert "!" not in "".join(text for text, _ in look.bar(share, width, "good", thin=thin))


def test_a_gpu_that_is_held_and_hardly_used_is_wasted_and_one_that_begins_or_is_free_is_not():
    known = cluster()
    held = next(gpu for gpu in known.gpus.values() if gpu["state"] == "allocated" and len(gpu["tasks"]) == 1)
    task = known.tasks[held["tasks"][0]]
    task["started_at"] = timestamp(known.now - TREND * STEP)
    key = held["node"], held["uuid"]

    def wasted(load: float | None, **changes: object) -> bool:
        known.trends[key] = deque([load] * TREND)
        return known.is_wasted({**held, **changes})

    assert [wasted(load) for load in (0, 9, 10, 90, None)] == [True, True, False, False, False]
    assert not wasted(0, state="free", tasks=[])
    task["started_at"] = timestamp(known.now - 60)
    assert not wasted(0)


def test_what_is_not_known_is_no_empty_bar():
    assert look.bar(None, 4, "good") == [("····", "dim")]
    assert look.bar(0.0, 4, "good") == [("", "good"), ("░░░░", "track")]


@given(st.lists(st.none() | st.floats(0, 100), max_size=300), st.integers(0, 50))
@example([50.0, None], 1)  # one column for both: it shows what is known
def test_a_trend_is_as_wide_as_it_should_be_and_ends_with_the_newest(values, width):
    text = look.spark(values, width)
    assert len(text) == width
    if values and width:
        newest = values[min((width - 1) * len(values) // width, len(values) - 1) :]
        assert (text[-1] == " ") == (newest.count(None) == len(newest))


# ------------------------------------------------------------------------------- lines

PIECES = st.lists(st.tuples(st.text("ab日", max_size=5), st.sampled_from(["", "good", "bad"])), max_size=6)


def cells(line: list[Piece], width: int) -> list[tuple[str, str]]:
    """Each column of the screen: its character (of a wide one the second column has none) and its style."""
    found = []
    for text, style in line:
        for char in text:
            found += [(char, style), *[("", style)] * (cell_len(char) - 1)]
    return (found + [(" ", "")] * width)[:width]


@given(PIECES, PIECES)
def test_painting_only_what_differs_gives_the_new_line(before, after):
    width = 40
    screen, wanted = cells(before, width), cells(after, width)
    for x, wide in _differences(before, after, width):
        screen[x : x + wide] = wanted[x : x + wide]
    assert screen == wanted


def test_only_the_cell_that_changed_is_painted():
    before = [("node1", "strong"), ("  ", ""), (" 94%", ""), ("  alice", "")]
    after = [("node1", "strong"), ("  ", ""), (" 95%", ""), ("  alice", "")]
    assert _differences(before, after, 80) == [(7, 4)]


@given(st.text("ab日 ", max_size=30), st.integers(0, 20), st.booleans())
def test_a_text_is_made_as_wide_as_its_column(text, width, right):
    assert cell_len(fitted(text, width, right=right)) == width


def test_a_line_that_is_folded_goes_on_behind_its_label_or_further_in():
    fields = "address        ann@a-long-name.of.a.host by asyncssh"
    hint = "    would help: --gpus 4 (any GPUs)"
    assert hung(Content(f"{fields}\n{hint}\nshort\n"), 40).plain.split("\n") == [
        "address        ann@a-long-name.of.a.host", "               by asyncssh",
        hint, "short", "",
    ]  # fmt: skip
    assert hung(Content(hint), 30).plain.split("\n") == ["    would help: --gpus 4 (any", "      GPUs)"]


@given(st.lists(st.text("ab日 ", max_size=60), max_size=3), st.integers(1, 60))
def test_folding_loses_no_word_and_no_line_is_too_wide(lines, width):
    found = hung(Content("\n".join(lines)), width).plain
    assert "".join(found.split()) == "".join("".join(lines).split())
    assert width < 30 or all(cell_len(line.rstrip()) <= width for line in found.split("\n") if line.lstrip(" ") == line)


def test_a_legend_of_80_columns_has_the_signs_of_a_fleet_with_slices_in_place_of_the_scale():
    states = ("free", "foreign", "unhealthy", "partitioned", "task")
    shown = ["".join(text for text, _ in legend(METRICS[0], states, 3, width)) for width in (80, 120)]
    assert all("T task" in line and len(line) <= width for line, width in zip(shown, (80, 120), strict=True))
    assert [line.startswith("utilization %  0 20 40") for line in shown] == [False, True]


# -------------------------------------------------------------------------------- acts


@pytest.mark.parametrize(
    ("state", "acts"),
    [
        ("running", {"logs", "shell", "forward", "stop", "kill", "pause"}),
        ("paused", {"logs", "stop", "kill", "pause"}),
        ("pending", {"stop", "kill", "top"}),
        ("scheduled", {"stop", "kill"}),
        ("lost", {"logs", "stop", "kill"}),
        ("completed", {"logs", "retry", "remove"}),
        ("failed", {"logs", "retry", "remove"}),
    ],
)
def test_what_can_be_done_to_a_task_in_each_state(state, acts):
    task = {"state": state, "ended_at": "then" if state in ("completed", "failed") else None}
    found = {act.name for act in ACTIONS if applies(act.name, Target(task, None))}
    assert found == acts | {"submit", "again", "describe"}


@pytest.mark.parametrize(
    ("state", "acts"),
    [
        ("running", {"logs", "shell", "forward", "stop", "kill", "pause", "restart", "snapshots", "resize"}),
        ("paused", {"logs", "stop", "kill", "pause", "restart", "snapshots", "resize"}),
        ("pending", {"stop", "kill", "top"}),
        ("stopped", {"logs", "start", "anywhere", "snapshots", "resize", "remove"}),
        ("lost", {"logs", "stop", "kill", "anywhere", "snapshots", "resize"}),
    ],
)
def test_what_can_be_done_to_a_vps_in_each_state(state, acts):
    vps = {"state": state, "workload": "vps", "ended_at": "then" if state == "stopped" else None}
    found = {act.name for act in ACTIONS if applies(act.name, Target(vps, None))}
    assert found == acts | {"submit", "again", "describe"}


def test_a_vps_of_another_controller_is_a_task():
    foreign = {"state": "running", "workload": "vps", "foreign": True, "ended_at": None}
    assert not {"restart", "snapshots", "resize"} & {
        act.name for act in ACTIONS if applies(act.name, Target(foreign, None))
    }


def test_a_node_is_drained_or_let_in_whichever_it_is_not():
    online = {"drained": False, "state": "online"}
    drained = {"drained": True, "state": "drained"}
    names = ("drain", "resume_node")
    assert [applies(name, Target(None, online)) for name in names] == [True, False]
    assert [applies(name, Target(None, drained)) for name in names] == [False, True]


@pytest.mark.parametrize("workload", ["task", "vps"])
@pytest.mark.parametrize("state", STATES)
def test_no_key_has_two_meanings_at_once(workload, state):
    ended = None if state in LIVE else "then"
    target = Target({"state": state, "workload": workload, "ended_at": ended}, {"drained": True, "state": "drained"})
    keys = [act.key for act in ACTIONS if applies(act.name, target)]
    assert len(set(keys)) == len(keys)


@given(st.text(max_size=60), st.integers(2, 20), st.integers(1, 4))
def test_any_words_are_folded_into_lines_that_fit_and_what_is_missing_is_said(text, width, most):
    lines, whole = folded(text, width, most), folded(text, width, 100)
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    assert lines == whole or (len(lines) == most < len(whole) and lines[-1].endswith("…"))
    assert "".join(whole).replace(" ", "") == "".join(fitted(text, 1000).split())
