"""What each view of the dashboard makes of the cluster: what is drawn, in which order, and in which words."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agentless.client.client import Client
from agentless.client.words import where
from agentless.rules.views.publish import timestamp
from agentless.tui.app import SEEN, Dashboard
from agentless.tui.data.cluster import ClusterState
from agentless.tui.data.feed import Feed
from agentless.tui.data.picks import Pick, picks
from agentless.tui.screens.details.cluster import ClusterDetails
from agentless.tui.screens.overview import news
from agentless.tui.screens.overview.map import ClusterMap
from agentless.tui.screens.overview.node import NodePainter
from agentless.tui.screens.overview.view import Overview
from agentless.tui.screens.submit import SubmitForm
from agentless.tui.screens.tasks import Tasks
from agentless.tui.screens.view import _sorted
from agentless.tui.widgets.lines import Lines, fitted, folded
from tests.fleet.eyes import Eyes

BOARD = json.loads((Path(__file__).parent / "data" / "dashboard" / "board.json").read_text())
RECORDED, WORKFLOW = BOARD["line"], BOARD["workflow"]
NODE, TASKS = RECORDED["nodes"][1], {task["name"] or task["id"]: task for task in RECORDED["tasks"]}
RUNS, WAITS, FAILED = TASKS["pretrain-a"], TASKS["big"], TASKS["short"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No controller is asked."""
    monkeypatch.setattr(Feed, "start", lambda _: None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "agentless").mkdir()
    (tmp_path / "agentless" / SEEN).touch()


@contextlib.asynccontextmanager
async def over(line: dict, size: tuple[int, int] = (120, 36), **more: bool) -> AsyncIterator[Eyes]:
    """A dashboard over this cluster."""
    app = Dashboard(Client(Path("/nowhere"), None), **more)
    async with app.run_test(size=size) as pilot:
        app.incoming.begin()
        app.incoming.take(line)
        yield Eyes(app, pilot)


async def drawn(line: dict, *keys: str, size: tuple[int, int] = (120, 36), **more: bool) -> str:
    """The screen over this cluster after these keys."""
    async with over(line, size, **more) as eyes:
        await eyes.press(*keys)
        for _ in range(3):
            await eyes.pilot.pause()
        return eyes.text


# ------------------------------------------------------------------------------- texts

HOSTILE = "one\ntwo\rthree\x1b[2Jfour\x07"


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 50), marks=pytest.mark.slow)])
async def test_what_others_chose_stays_in_its_line(size):
    line = json.loads(json.dumps(RECORDED))
    for node in line["nodes"]:
        node.update(state="degraded", reason=HOSTILE)
    for gpu in line["gpus"]:
        gpu.update(reason=HOSTILE)
    for task in line["tasks"]:
        task.update(owner=HOSTILE, name=HOSTILE, command=[HOSTILE], reason=HOSTILE)
    async with over(line, size) as eyes:
        for view in "12345":
            await eyes.press(view)
            await eyes.pilot.pause()
            assert len(eyes.text.split("\n")) == size[1]
            assert all(row.isprintable() for row in eyes.text.split("\n")), view


@given(st.text(max_size=30), st.integers(0, 20), st.booleans())
def test_any_text_is_made_as_wide_as_its_column_and_harmless(text, width, right):
    found = fitted(text, width, right=right)
    assert cell_len(found) == width
    assert found.isprintable()


# ------------------------------------------------------------------------------- tasks


def tasks(*rows: dict) -> dict:
    """The recorded cluster with these tasks only."""
    return {**RECORDED, "tasks": list(rows)}


def test_tasks_on_nodes_are_above_the_queue_and_that_above_the_ended():
    waiting = [{**WAITS, "id": f"9-{at}", "position": at} for at in (3, 1, 2)]
    there = [{**RUNS, "id": "1"}, {**RUNS, "id": "2", "state": "lost"}]
    ended = [{**FAILED, "id": "8", "ended_at": "2026-11-22T00:00:01.000Z"},
             {**FAILED, "id": "7", "ended_at": "2026-11-22T00:00:02.000Z"}]  # fmt: skip
    view = Tasks(ClusterState(), id="tasks")
    view.cluster.apply(tasks(*ended, *waiting, *there))
    assert [row["id"] for row in view.all_rows()] == ["2", "1", "9-1", "9-2", "9-3", "7", "8"]


async def test_whose_task_it_is_and_why_it_waits_are_seen_where_there_is_little_room():
    waits = {**WAITS, "reason": "held by task 7", "command": ["python", "a-long-name/" * 9], "position": 1}
    async with over(tasks(waits), (80, 24)) as eyes:
        await eyes.press("4")
        await eyes.see("ann: [held by task 7]")
        await eyes.pilot.resize_terminal(48, 40)  # a phone
        await eyes.see("ann big: [held")
        await eyes.press("5")
        await eyes.see("ann big: ")


async def test_a_stop_that_was_asked_for_is_seen_while_it_lasts_and_who_is_idle_runs():
    reasons = ["stopping", "stopping: enough", "killing", "stopping at its time limit", "idle for 45m, stops in 1h 15m"]
    text = await drawn(tasks(*({**RUNS, "id": f"t{at}", "reason": why} for at, why in enumerate(reasons))), "4")
    seen = {words[0]: words[1] for words in map(str.split, text.splitlines()) if words and words[0][0] == "t"}
    assert seen == {**dict.fromkeys(("t0", "t1", "t2", "t3"), "stopping"), "t4": "running"}


def test_an_owner_has_one_name_with_the_machine_only_if_another_has_the_same_user_name():
    cluster = ClusterState()
    cluster.apply(tasks({**RUNS, "id": "1", "owner": "ann@a"}, {**RUNS, "id": "2", "owner": "ann@a"}))
    assert [cluster.who("ann@a"), cluster.who("bob@b"), cluster.who("root")] == ["ann", "bob", "root"]
    cluster.apply(tasks({**RUNS, "id": "3", "owner": "ann@b"}))
    assert [cluster.who("ann@a"), cluster.who("ann@b")] == ["ann@a", "ann@b"]


def test_tasks_are_sorted_by_the_time_that_is_shown():
    now = time.time()
    rows = [
        {**RUNS, "id": "2h", "started_at": timestamp(now - 7200)},
        {**FAILED, "id": "1m", "started_at": timestamp(now - 90000), "ended_at": timestamp(now - 89940)},
        {**RUNS, "id": "1h", "started_at": timestamp(now - 3600)},
        {**WAITS, "id": "in 5m", "expected_start": timestamp(now + 300)},
        {**WAITS, "id": "-"},
    ]
    view = Tasks(ClusterState(), id="tasks")
    column = next(column for column in view.columns() if column.title == "TIME")
    assert [row["id"] for row in _sorted(rows, column, reverse=False)] == ["in 5m", "1m", "1h", "2h", "-"]


@pytest.mark.parametrize("at", [39, pytest.param(0, marks=pytest.mark.slow)])
async def test_the_row_that_is_chosen_before_the_view_was_ever_shown_is_on_the_screen(at):
    rows = [{**FAILED, "id": f"task{n}", "ended_at": f"2026-11-22T00:00:{59 - n}.000Z"} for n in range(40)]
    async with over(tasks(*rows)) as eyes:
        eyes.app.post_message(SubmitForm.Submitted(f"task{at}", "tasks"))
        await eyes.see(lambda: f"task{at} " in eyes.text)
        for _ in range(3):
            await eyes.pilot.pause()
        assert f"task{at} " in eyes.text


async def test_rows_are_sorted_by_the_columns_that_are_shown_each_with_an_arrow():
    async with over(RECORDED, (80, 24)) as eyes:
        await eyes.press("2")
        await eyes.see("USED BY")
        table = eyes.app.view.table
        shown = len(table.heading())
        assert shown < len(table.columns)
        titles = []
        for _ in range(shown + 1):
            await eyes.press("o")
            titles.append(table.titles.render().plain)
        assert [title.count("▲") for title in titles] == [1] * shown + [0]
        assert "…" not in "".join(titles)


async def test_reversing_without_a_sort_does_nothing_now_or_later():
    async with over(tasks(RUNS, {**RUNS, "id": "1"})) as eyes:
        await eyes.press("4", "i", "o")
        assert [row["id"] for row in eyes.app.view.table.rows] == ["1", RUNS["id"]]


async def test_a_filter_that_leaves_out_the_chosen_row_chooses_the_first_one_and_keeps_one_that_fits():
    ended = {**FAILED, "id": "9", "name": "apple", "mine": False}
    mine = {**RUNS, "id": "1", "name": "pear", "mine": True}
    async with over(tasks({**RUNS, "id": "2", "name": "apple", "mine": False}, mine, ended)) as eyes:
        table = lambda: eyes.app.view.table  # noqa: E731
        await eyes.press("4", "down", "slash", "apple", "enter")  # the chosen one is `pear`
        assert [table().chosen["id"], len(table().rows)] == ["2", 2]
        await eyes.press("down", "escape")
        assert table().chosen["id"] == "9"  # it is still there
        await eyes.press("a")
        assert table().chosen["id"] == "2"
        await eyes.press("m")
        assert table().chosen["id"] == "1"
        await eyes.press("slash", "nothing has this", "enter", "escape", "enter")
        assert eyes.app.screen.about_task["id"] == "1"


# ------------------------------------------------------------- a node that is unplugged


def unplugged() -> dict:
    """The recorded cluster with node2, on which a task runs, cut off."""
    nodes = [node if node["name"] != "node2" else {**node, "state": "offline", "reason": "no answer"}
             for node in RECORDED["nodes"]]  # fmt: skip
    gpus = [{**gpu, "utilization_pct": 77, "temperature_c": 66} if gpu["node"] == "node2" else gpu
            for gpu in RECORDED["gpus"]]  # fmt: skip
    return {**RECORDED, "nodes": nodes, "gpus": gpus}


@pytest.mark.parametrize(
    "size", [(80, 24), *(pytest.param(size, marks=pytest.mark.slow) for size in ((160, 24), (160, 50)))]
)
async def test_old_numbers_are_not_shown_as_if_they_were_new(size):
    async with over(unplugged(), size) as eyes:
        for view in "12":
            await eyes.press(view)
            await eyes.pilot.pause()
            assert "node2" in eyes.text, view
            assert "77%" not in eyes.text, view
            assert "66C" not in eyes.text, view


async def test_the_trend_of_a_node_that_does_not_answer_has_a_gap():
    cluster = ClusterState()
    cluster.apply(unplugged())
    cluster.sampled()
    assert {key[0]: list(trend) for key, trend in cluster.trends.items()}["node2"] == [None]


async def test_a_task_on_a_node_that_does_not_answer_is_not_said_to_run():
    text = await drawn(unplugged(), "4", size=(160, 24))
    (line,) = [line for line in text.splitlines() if "resnet" in line]
    assert "running?" in line
    assert "[node2 is unreachable]" in line


def test_a_node_without_a_new_sample_does_not_answer_and_one_without_docker_does():
    cluster = ClusterState()
    cluster.apply(json.loads(json.dumps(RECORDED)))
    cluster.nodes["node1"].update(state="degraded", reason="docker is gone", sampled_at=timestamp(cluster.now - 2))
    cluster.nodes["node2"].update(
        state="degraded", reason="its last sample is old", sampled_at=timestamp(cluster.now - 60)
    )
    assert [cluster.is_silent(name) for name in ("node1", "node2", "node3")] == [False, True, False]


# ---------------------------------------------------------------------------- overview


async def test_the_overview_is_never_painted_in_a_layout_for_another_room(monkeypatch):
    painted, paint = set(), Lines.render_line
    monkeypatch.setattr(ClusterMap, "render_line", lambda shown, y: painted.add(shown._form) or paint(shown, y))
    async with over(RECORDED) as eyes:
        await eyes.press("4")
        await eyes.pilot.pause()
        painted.clear()
        await eyes.press("1")
        await eyes.pilot.pause()
        eyes.app.view.update()
        eyes.app.view.map.refresh()
        await eyes.pilot.pause()
        assert len(painted) == 1


async def test_gpus_that_do_not_fit_as_tiles_are_all_seen_as_signs():
    nodes = [{**NODE, "name": f"n{at}"} for at in range(6)]
    gpus = [{**gpu, "node": node["name"]} for node in nodes for gpu in RECORDED["gpus"] if gpu["node"] == "node2"]
    text = await drawn({**tasks(), "nodes": nodes, "gpus": gpus}, size=(80, 24))
    assert all(any(line.startswith(f"n{at} ") for line in text.splitlines()) for at in range(6))


async def test_the_news_say_what_is_next_since_when_a_task_runs_and_the_cause_of_a_failure():
    now = time.time()
    late, soon = ({**WAITS, "id": each, "batch": each, "name": each, "position": at,
                   "expected_start": timestamp(now + wait)} for at, (each, wait) in
                  enumerate((("late", 7200), ("soon", 610)), 1))  # fmt: skip
    unknown = {**WAITS, "id": "unknown", "batch": "unknown", "name": "unknown", "position": 3}
    gone = "node2 (ann@10.0.0.2) cannot be reached: Connection refused; check that it is up"
    nodes = [{**node, "state": "offline", "reason": gone} if node["name"] == "node2" else node
             for node in RECORDED["nodes"]]  # fmt: skip
    runs = {**RUNS, "started_at": timestamp(now - 3600), "time_limit": None}
    async with over({**tasks(unknown, late, soon, runs), "nodes": nodes}, (200, 60)) as eyes:
        for at, reason in enumerate(("no answer", "refused"), 1):
            event = {"seq": at, "kind": "node", "at": now - 60 * at, "node": "node2", "state": "offline"}
            eyes.app.incoming.take_event({**event, "reason": reason})
        for seq, name in enumerate(("assigned", "launched"), 3):
            eyes.app.incoming.take_event({"seq": seq, "kind": "task", "at": now, "event": name, "task": runs})
        eyes.app.view.update()
        await eyes.see("next, within 10m", "for 1h", "Recently", "Started on node1::1")
        assert "Assigned" not in eyes.text
        assert eyes.text.index("soon") < eyes.text.index("late") < eyes.text.index("unknown needs")
        assert eyes.text.count("next") == 1
        assert not re.search(r"[123] ann (soon|late|unknown) needs", eyes.text), "a position is not the order of starts"
        assert eyes.text.count("node2 Offline") == 1
        assert "offline: Connection refused; check" in eyes.text


def test_a_start_is_one_piece_of_news_and_a_place_that_is_given_later_another():
    names = ("queued", "assigned", "met", "launched", "requeued", "assigned")
    events = [{"kind": "task", "event": name, "at": float(at), "task": RUNS} for at, name in enumerate(names)]
    shown = [event["event"] for event in news._without_repetition(events[::-1])]
    assert shown == ["assigned", "requeued", "launched", "queued"]


async def test_a_batch_that_waits_for_one_reason_is_one_piece_of_news():
    batch = [{**WAITS, "id": f"b-{at}", "batch": "b", "position": at} for at in range(2, 215)]
    text = await drawn(tasks({**WAITS, "position": 1}, *batch), size=(80, 26))
    assert ": 213 of b pending" in text
    assert "next, start unknown" in text
    assert text.count(WAITS["reason"]) == 2


async def test_a_thousand_pieces_of_news_are_not_all_wrapped_and_the_last_line_says_so(monkeypatch):
    wrapped = []
    monkeypatch.setattr(news, "folded", lambda *words: wrapped.append(words) or folded(*words))
    waits = [{**WAITS, "id": f"{at}", "batch": f"{at}", "position": at, "reason": f"why {at}"} for at in range(1000)]
    async with over(tasks(*waits)) as eyes:
        await eyes.see("needs")
        wrapped.clear()
        eyes.app.view.update()
        assert 0 < len(wrapped) == len(set(wrapped)) < 110  # each once, although there is a scrollbar
        eyes.app.view.news.scroll_end(animate=False)
        await eyes.see("5 for the whole queue")


async def test_what_is_cut_of_the_chosen_gpu_below_a_heat_map_says_so():
    gpus = [{**gpu, "state": "drained", "reason": "new fans " * 9} for gpu in RECORDED["gpus"]]
    text = await drawn({**RECORDED, "gpus": gpus}, size=(60, 16))
    assert next(line for line in text.splitlines() if line.startswith("node1::0 ")).endswith("…")


async def test_who_has_most_gpus_is_said_also_of_a_single_owner():
    assert "Most GPUs  ann" in await drawn(tasks(RUNS), size=(80, 24))


async def test_on_a_phone_it_is_seen_who_uses_a_gpu_and_where_a_task_is():
    async with over(tasks({**RUNS, "name": "pretrain"}), (48, 40)) as eyes:
        await eyes.press("2")
        await eyes.see("USED BY", "ann pretrain", "hidden columns: MODEL, TREND 10 min, MEMORY,")
        await eyes.press("4")
        await eyes.see(f"  {where(RUNS)} ann")
        await eyes.press("3", "enter")
        await eyes.see("GiB\n     ann pretrain", "busy, 16 set aside,\n                load")


async def test_the_news_are_scrolled_by_keys():
    waits = [{**WAITS, "id": f"{at}", "batch": f"{at}", "name": f"w{at}", "position": at} for at in range(1, 20)]
    async with over(tasks(*waits)) as eyes:
        await eyes.see(" ann w1 needs")
        await eyes.press("]")
        await eyes.see(lambda: " ann w1 needs" not in eyes.text)
        await eyes.press("[")
        await eyes.see(" ann w1 needs")


async def test_tasks_that_have_failed_lately_are_counted_and_those_of_an_hour_ago_are_not():
    lately = {**FAILED, "ended_at": timestamp(RECORDED["now"] - 60)}
    text = await drawn(tasks(FAILED, *({**lately, "id": f"{at}"} for at in range(200))), size=(80, 24))
    assert "! 200 tasks failed" in text


async def test_clusters_leave_the_nodes_their_lines_and_those_without_space_are_counted():
    nodes = [{**RECORDED["nodes"][0], "name": f"n{at}"} for at in range(7)]
    gpus = [{**RECORDED["gpus"][0], "node": f"n{at % 7}", "uuid": str(at)} for at in range(19)]
    clusters = [{**HPC, "name": f"hpc{at}"} for at in range(3)]
    async with over({**RECORDED, "nodes": nodes, "gpus": gpus, "clusters": clusters}, (90, 44)) as eyes:
        await eyes.see("hpc2 online", lambda: eyes.app.query_one(Overview).size.height == 41)
        shown = eyes.app.query_one(ClusterMap)
        assert (shown.length(), shown.cell) == (26, 0)
        await eyes.pilot.resize_terminal(90, 24)
        await eyes.see("and 2 more clusters", lambda: "hpc0 online" in eyes.text)


async def test_the_line_of_numbers_fits_a_large_cluster_with_trouble_on_80_columns():
    states = ["free"] * 8 + ["allocated"] * 52 + ["foreign"] * 2 + ["unhealthy"] * 2
    gpus = [{**RECORDED["gpus"][0], "uuid": str(at), "state": state} for at, state in enumerate(states)]
    some = [{**RUNS, "id": f"r{at}"} for at in range(52)] + [{**WAITS, "id": f"w{at}"} for at in range(213)]
    text = await drawn({**tasks(*some), "gpus": gpus}, size=(80, 24), read_only=True)
    assert text.splitlines()[1].split("│") == [
        " read only ", " ! 2 ", " 52 running 213 pending ", " 8/64 free 52 in use 2 foreign 2 out"
    ]  # fmt: skip


async def test_a_task_has_its_name_also_where_there_is_no_room_for_the_column():
    async with over(RECORDED, (80, 24)) as eyes:
        await eyes.press("4")
        await eyes.see("pretrain-a: python train.py")
        await eyes.pilot.resize_terminal(160, 24)
        await eyes.see("pretrain-a", lambda: "pretrain-a: " not in eyes.text)


# ------------------------------------------------------------------------------- clusters

HPC = {
    "name": "hpc", "engine": "slurm", "state": "online", "reason": "", "address": "ann@login1", "tasks": 2, "nodes": 3,
    "gpus": {"a100": 6, "h100": 2}, "gpus_used": {"a100": 5}, "gpus_free": 2, "nodes_out": 1,
    "out": {"c2": "fan\nbroken"}, "asked_at": "2026-11-22T08:00:00Z",
}  # fmt: skip
JOBS = [
    {**RUNS, "id": "2job", "node": "hpc", "gpu_uuids": [], "gpus": [], "target": "hpc 4x",
     "container": "7:agentless-2job"},
    {**WAITS, "id": "2next", "node": "hpc", "state": "submitted", "target": "hpc 4x", "container": "8:agentless-2next",
     "reason": "job 8: waits for free resources"},
]  # fmt: skip


async def test_gpus_are_counted_once_and_their_slices_apart():
    held = [{**RUNS, "id": owner, "owner": owner} for owner in ("alice", "bob")]
    whole = {**RECORDED["gpus"][0], "kind": "gpu", "profile": "", "parent": None, "node": "node1", "tasks": ["alice"]}
    parts = [
        {
            **whole,
            "uuid": f"MIG-{at}",
            "kind": "slice",
            "profile": "1g.10gb",
            "parent": "GPU-b",
            "state": state,
            "tasks": ["bob"] if at else [],
        }
        for at, state in enumerate(("free", "free", "allocated"))
    ]
    gpus = [whole, {**whole, "uuid": "GPU-b", "state": "partitioned", "tasks": []}, *parts]
    async with over({**tasks(*held), "nodes": RECORDED["nodes"][:1], "gpus": gpus}) as eyes:
        await eyes.pilot.pause()
        assert "│ 1/2 GPUs free 0 in use 1 partitioned │ 2/3 slices free │" in eyes.text
        assert "1 of 2 free · 2 of 3 slices free · " in eyes.text
        assert "Most GPUs  alice 1 · bob 2 slices" in eyes.text
        titles = [NodePainter(eyes.app.cluster).top("node1", gpus, width)[-2][0] for width in (90, 70, 60, 40)]
        assert titles == [
            " 1 of 2 free · 2 of 3 slices free · 2 × A100 · 3 × MIG 1g.10gb ",
            " 1 of 2 free · 2 of 3 slices free · 2 × A100 ",
            " 1 of 2 free · 2 of 3 slices free ",
            " 1 of 2 free ",
        ]
        await eyes.press("3")
        await eyes.see("1/2 + 2/3 slices")
        assert picks("gpu_type", eyes.app.cluster, {})[:2] == [
            Pick("1g.10gb", "2 of 3 slices free"), Pick("A100", "1 of 2 GPUs free"),
        ]  # fmt: skip


async def test_a_gpu_that_is_reserved_now_is_not_free():
    free = {**RECORDED["gpus"][0], "node": "node1", "state": "free", "tasks": [], "reason": ""}
    begins = ("2026-01-01T00:00:00Z", "2198-01-01T00:00:00Z", None)
    held = {"owner": "root", "ends_at": "2199-01-01T00:00:00Z", "reason": ""}
    gpus = [
        {
            **free, "uuid": str(at), "index": at, "reserved": each and "reserved for root",
            "reservation": each and {**held, "begins_at": each},
        }
        for at, each in enumerate(begins)
    ]  # fmt: skip
    node = {**RECORDED["nodes"][0], "gpus": 3, "gpus_free": 3}
    async with over({**tasks(), "nodes": [node], "gpus": gpus}, (120, 40)) as eyes:
        await eyes.see("2/3 GPUs free 0 in use 1 reserved", "2 of 3 free · 1 reserved", "0 reserved", "1 free")
        await eyes.press("3")
        await eyes.see("2/3")
        await eyes.pilot.resize_terminal(80, 14)
        await eyes.press("1")
        await eyes.see("1 reserved", "reserved for root")


async def test_clusters_are_counted_apart_and_opened_from_the_list_of_nodes(monkeypatch):
    asked = list[str]()
    monkeypatch.setattr(ClusterDetails, "get", lambda _, path: asked.append(path) or [])
    async with over({**tasks(*JOBS), "clusters": [HPC]}, (120, 40)) as eyes:
        await eyes.pilot.pause()
        for words in (
            "│ hpc 2/8 free",
            "2 of 8 GPUs free",
            "a100",
            "5/6",
            "1 running 1 pending",
            "out: c2 (fan broken)",
        ):
            assert words in eyes.text
        assert Pick("hpc", "cluster, online, 2 of 8 GPUs free") in picks("node", eyes.app.cluster, {})
        assert Pick("h100", "2 GPUs of hpc") in picks("gpu_type", eyes.app.cluster, {})
        await eyes.press("3", "end", "enter")
        await eyes.pilot.pause()
        assert "1 running, 1 pending" in eyes.text
        assert "job 8: waits for free resources" in eyes.text
        for row in ({**HPC, "asked_at": "2026-11-22T08:01:00Z"}, {**HPC, "gpus_free": 1}):  # the answer has a new time
            eyes.app.incoming.take({"now": RECORDED["now"], "clusters": [row]})
            await eyes.app.workers.wait_for_complete()
        assert asked == ["/v1/clusters/hpc/nodes"] * 2
        assert eyes.app.places.here.path == "/nodes/hpc"
        await eyes.press("down")
        assert eyes.app.target.task["id"] == "2next"
        await eyes.press("enter")
        assert eyes.app.places.here.path == "/tasks/2next"
        await eyes.press("escape")
        eyes.app.incoming.take({"now": RECORDED["now"], "gone": [["clusters", "hpc"]]})
        await eyes.pilot.pause()
        assert "hpc is no longer in the inventory" in eyes.text
