"""Many rows at once: marks, exports, the search over everything, and what can be undone."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import Refused
from agentless.model.text import printable
from agentless.tui.data.actions import ACTIONS, Target, effect, perform_all, undone
from agentless.tui.data.export import FORMULA, as_text
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.overview.map import ClusterMap
from agentless.tui.widgets.table import TableColumn
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import RECORDED, RUNS, WAITS, alone, over, tasks  # noqa: F401 - for all

LAST = TableColumn("LAST", lambda _: "last")
SOME = [{**RUNS, "id": f"2mz{at}", "name": f"run-{at}"} for at in range(4)]

DRAINED = {**RECORDED["nodes"][0], "drained": True, "state": "drained", "reason": "disks (by ann@a, 2026-05-01)"}


@contextlib.asynccontextmanager
async def acting(line: dict, refuses: str = "") -> AsyncIterator[tuple[Eyes, list[tuple[str, object]]]]:
    """A dashboard, and what its controller is asked to do; it refuses paths with this in them."""
    done: list[tuple[str, object]] = []
    async with over(line) as eyes:

        def post(path: str, body: object = None, **_: object) -> object:
            if refuses and refuses in path:
                raise Refused("no")
            done.append((path, body))
            return {**RUNS, "state": "stopped", "tasks": 0, "lifted": []}

        eyes.app.client.post = post
        yield eyes, done


async def test_an_action_applies_to_all_marked_tasks():
    async with acting(tasks(*SOME), refuses="2mz2") as (eyes, done):
        await eyes.press("4", "space", "space")
        await eyes.see("2 rows marked", "● 2mz3", "● 2mz2", "  2mz1")
        await eyes.press("T")
        await eyes.see("Stop 2 tasks?", "task 2mz3 (run-3)", "task 2mz2 (run-2)")
        await eyes.press("y")
        await eyes.see(lambda: len(done) == 1 and "●" not in eyes.text)
    assert [path for path, _ in done] == ["/v1/tasks/2mz3-1/stop"]


async def test_a_paused_task_is_seen_as_one_and_a_pause_of_what_belongs_to_others_is_asked_for():
    paused, other = {**RUNS, "state": "paused"}, {**RUNS, "id": "2bob", "owner": "bob@pc", "mine": False}
    async with acting(tasks(paused, other)) as (eyes, done):
        await eyes.see("1 running 1 paused 0 pending", "Running 1, paused 1")
        await eyes.press("4", "end", "p")
        await eyes.see("Pause task 2bob", "owner bob@pc", "Not your own")
        await eyes.press("n", "home", "p")
        await eyes.see(lambda: done == [(f"/v1/tasks/{RUNS['id']}-1/resume", None)])


async def test_a_node_action_applies_to_all_marked_nodes_wherever_the_cursor_is():
    async with acting(RECORDED) as (eyes, done):
        await eyes.press("3", "space", "space")  # the cursor is on node3, which is drained
        await eyes.see("2 rows marked", "Drain")
        await eyes.press("D")
        await eyes.see("Drain 2 nodes?", "node node1", "node node2")
        await eyes.press("enter")
        await eyes.see(lambda: len(done) == 2 and "●" not in eyes.text)
    assert [path for path, _ in done] == ["/v1/nodes/node1/drain", "/v1/nodes/node2/drain"]


async def test_a_name_comes_before_commands_that_only_have_its_letters():
    async with over(tasks({**RUNS, "id": "2mz9", "name": "finetune-bert"})) as eyes:
        await eyes.press("colon", "bert")
        await eyes.see(lambda: "finetune-bert" in eyes.text and "Colors: " in eyes.text)
        assert eyes.text.index("finetune-bert") < eyes.text.index("Colors: ")


async def test_marks_are_cleared_before_the_filter():
    async with acting(tasks(*SOME)) as (eyes, _):
        await eyes.press("4", "slash", "run-1", "enter", "space")
        await eyes.see("1 row marked")
        await eyes.press("escape")
        await eyes.see(lambda: "marked" not in eyes.text and "2mz3" not in eyes.text)
        await eyes.press("escape")
        await eyes.see("2mz3")


async def test_an_action_without_marks_applies_to_the_chosen_task():
    async with acting(tasks(*SOME)) as (eyes, done):
        await eyes.press("4", "down", "T")
        await eyes.see("Stop task 2mz2 (run-2)?")
        await eyes.press("y")
        await eyes.see(lambda: done == [("/v1/tasks/2mz2-1/stop", {})])


async def test_a_key_that_does_not_apply_says_why():
    single = {**RUNS, "batch": RUNS["id"], "parameters": {}}
    async with acting(tasks(single)) as (eyes, done):

        async def told(key: str, words: str) -> None:
            await eyes.press(key)
            await eyes.see(lambda: [note.message for note in eyes.app._notifications] == [words])

        await eyes.press("4")
        named = f"task {RUNS['id']} (pretrain-a)"
        await told("B", f"{named} has no batch: it was submitted alone")
        await told("R", f"Retry (R) does not apply: {named} is running")
        await told("D", "Drain (D) applies to a node; none is selected")
        await eyes.press("1", "slash")
        await eyes.see("Search tasks, nodes, GPUs")
    assert not done


def test_the_question_before_a_stop_says_that_a_task_that_waits_is_only_cancelled():
    stop = next(act for act in ACTIONS if act.name == "stop")
    waits, runs = (Target({"state": state}, None) for state in ("pending", "running"))
    assert effect(stop, [waits]) == "Cancels it: it has not started."
    assert effect(stop, [waits, waits]) == "Cancels them: they have not started."
    assert effect(stop, [waits, runs]) == stop.effect


@pytest.mark.slow
async def test_marked_tasks_can_be_stopped_wherever_the_cursor_is():
    ended = {**SOME[0], "state": "failed", "ended_at": RUNS["started_at"]}
    async with acting(tasks(*SOME[1:], ended)) as (eyes, _):
        await eyes.press("4", "space", "space", "end", "T")
        await eyes.see("Stop 2 tasks?")


async def test_the_search_names_the_marked_tasks_that_a_command_is_for():
    async with acting(tasks(*SOME)) as (eyes, done):
        await eyes.press("4", "space", "space", "end", "colon")
        await eyes.pilot.pause()
        await eyes.press("Pause")
        await eyes.see("Key p · 2 marked tasks")
        assert not done


async def test_with_marks_an_action_applies_to_no_row_without_one():
    ended = {**SOME[0], "state": "failed", "ended_at": RUNS["started_at"]}
    async with acting(tasks(*SOME[1:], ended)) as (eyes, done):
        await eyes.press("4", "space", "end")  # the cursor is on a task that could be retried
        await eyes.see("1 row marked")
        await eyes.press("R")
        await eyes.see(lambda: any("none of the marked rows" in each.message for each in eyes.app._notifications))
        assert not done


@pytest.mark.parametrize("kind", ["csv", pytest.param("json", marks=pytest.mark.slow)])
async def test_the_rows_that_are_shown_can_be_written_to_a_file(tmp_path, kind):
    file = tmp_path / f"tasks.{kind}"
    async with acting(tasks(*SOME)) as (eyes, _):
        await eyes.press("4", "space", "space", "X")
        await eyes.see("Export 2 rows?")
        await eyes.press("ctrl+u", str(file), "enter")
        await eyes.see(file.exists)
        ids = ["2mz3", "2mz2"]
        if kind == "json":
            assert [row["id"] for row in json.loads(file.read_text())] == ids
        else:
            assert [row["id"] for row in csv.DictReader(io.StringIO(file.read_text()))] == ids
        await eyes.press("X", "ctrl+u", str(file), "enter")
        await eyes.see(lambda: any("already exists" in each.message for each in eyes.app._notifications))


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3))
def test_a_spreadsheet_runs_nothing_that_others_wrote(texts):
    columns = [TableColumn(printable(text), lambda row, at=at: row["texts"][at]) for at, text in enumerate(texts)]
    titles, line = csv.reader(io.StringIO(as_text([{"texts": texts}], [*columns, LAST], "csv")))
    for cell in (*titles, *line):
        with contextlib.suppress(ValueError):
            float(cell)
            continue
        assert cell == "-" or not cell.startswith(FORMULA)


async def test_everything_is_found_by_its_words():
    async with over(RECORDED) as eyes:
        await eyes.press("slash")
        await eyes.pilot.pause()
        await eyes.press("ann pretrain-b")
        await eyes.see("pretrain-b")
        await eyes.press("down", "enter")
        await eyes.see(lambda: isinstance(eyes.app.screen, TaskDetails) and "pretrain-b" in eyes.text)
        await eyes.press("escape", "slash", "node, drained", "down", "enter")
        await eyes.see(lambda: isinstance(eyes.app.screen, NodeDetails) and "node3" in eyes.text)


async def test_what_others_wrote_is_no_markup_where_it_is_found():
    hostile = {**RUNS, "name": "[@click=app.quit]evil[/]", "owner": "[bold]mallory[/]"}
    async with over(tasks(hostile)) as eyes:
        await eyes.press("4", "colon")
        await eyes.pilot.pause()
        await eyes.press("evil")
        await eyes.see("[@click=app.quit]evil[/]", "[bold]mallory[/]")
        await eyes.press("ctrl+u", "Stop")
        await eyes.see("[@click=app.quit]evil[/]")


async def test_what_can_be_undone_is_undone_by_a_key():
    async with acting(tasks(WAITS, {**WAITS, "id": "other", "position": 1})) as (eyes, done):
        eyes.app.cluster.tasks[WAITS["id"]]["position"] = 2
        await eyes.press("5", "end", "U")
        await eyes.see(lambda: len(done) == 1 and eyes.app._undo)
        await eyes.press("Z")
        await eyes.see(lambda: len(done) == 2)
        assert [body for _, body in done] == [{"position": 1}, {"position": 2}]
        await eyes.press("Z")
        await eyes.see(lambda: any("Nothing to undo" in each.message for each in eyes.app._notifications))
        await eyes.press("3", "space", "D")
        await eyes.see("Drain")
        await eyes.press("enter")
        await eyes.see(lambda: len(done) == 3 and eyes.app._undo)
        eyes.app.client.get = lambda *_, **__: {"drained": True, "state": "offline", "reason": ""}
        await eyes.press("Z")
        await eyes.see(lambda: len(done) == 4)
        assert done[-1] == ("/v1/nodes/node1/resume", {"drain_only": True})


def test_nothing_takes_back_what_has_no_way_back():
    targets = Target(RUNS, RECORDED["nodes"][0])
    names = {act.name for act in ACTIONS if undone(act.name, targets, {})}
    assert names == {"pause", "drain"}


def test_to_undo_a_drain_uses_no_unhealthy_gpu_again():
    class Asked:
        done: ClassVar[list[object]] = []

        def get(self, _path: str) -> object:
            return DRAINED

        def post(self, path: str, body: object) -> dict:
            self.done.append((path, body))
            return {"lifted": []}

    undone("drain", Target(None, RECORDED["nodes"][0]), DRAINED)(Asked())
    assert Asked.done == [("/v1/nodes/node1/resume", {"drain_only": True})]


def test_a_drain_of_many_is_undone_for_each_that_was_drained():
    nodes = [{**RECORDED["nodes"][0], "name": name} for name in ("a", "b", "c")]

    class Asked:
        done: ClassVar[list[str]] = []

        def get(self, _path: str) -> object:
            return DRAINED

        def post(self, path: str, _body: object) -> dict:
            if "b" in path:
                raise Refused("no")
            self.done.append(path)
            return {**DRAINED, "lifted": []}

    drain = next(act for act in ACTIONS if act.name == "drain")
    words, undo = perform_all(Asked(), drain, [Target(None, node) for node in nodes])
    assert words == "Drain: done for 2 nodes\nnode b: no"
    for each in undo:
        each(Asked())
    assert Asked.done[2:] == ["/v1/nodes/c/resume", "/v1/nodes/a/resume"]


def test_a_resume_ends_a_drain_and_leaves_unhealthy_gpus_out():
    done: list[object] = []

    class Asked:
        def post(self, path: str, body: object) -> dict:
            done.append((path, body))
            return {**RECORDED["nodes"][0], "lifted": []}

    resume = next(act for act in ACTIONS if act.name == "resume_node")
    for node, words in ((DRAINED, "Unhealthy GPUs stay out"), (RECORDED["nodes"][0], "also on its unhealthy GPUs")):
        perform_all(Asked(), resume, [Target(None, node)])
        assert words in effect(resume, [Target(None, node)])
    assert done == [("/v1/nodes/node1/resume", {"drain_only": only}) for only in (True, False)]


@pytest.mark.parametrize(
    ("shown", "reason"), [("disks (by ann@a, 2026-05-01)", "disks"), ("by ann@a, 2026-05-01", None)]
)
def test_to_undo_a_resume_drains_for_the_same_reason(shown, reason):
    done: list[object] = []

    class Asked:
        now = RECORDED["nodes"][0]

        def get(self, _path: str) -> dict:
            return self.now

        def post(self, _path: str, body: object) -> dict:
            done.append(body)
            return RECORDED["nodes"][0]

    undo = undone("resume_node", Target(None, {**DRAINED, "reason": shown}), {})
    undo(Asked())
    assert done == [{"reason": reason}]
    Asked.now = DRAINED
    with pytest.raises(Refused, match="drained again"):
        undo(Asked())


@pytest.mark.parametrize(
    "now", [{**RECORDED["nodes"][0]}, {**DRAINED, "reason": "disks (by eve@b, 2026-05-02)"}], ids=["resumed", "drained"]
)
def test_to_undo_a_drain_leaves_alone_what_somebody_else_has_done_since(now):
    class Asked:
        def get(self, _path: str) -> dict:
            return now

    with pytest.raises(Refused, match="nothing was changed"):
        undone("drain", Target(None, RECORDED["nodes"][0]), DRAINED)(Asked())


async def test_an_error_in_the_code_is_shown_without_values_among_which_are_secrets():
    async with over(RECORDED) as eyes:
        try:
            raise_with("2retnuh"[::-1])
        except ValueError as error:
            eyes.app._exception = error
        eyes.app._fatal_error()
        (shown,) = eyes.app._exit_renderables
        eyes.app._exception = None
        assert "ValueError: no" in shown.plain
        assert "hunter2" not in shown.plain


def raise_with(secret: str) -> None:
    assert secret
    raise ValueError("no")


async def test_a_gpu_with_the_cursor_may_be_gone():
    async with over(RECORDED) as eyes:
        cluster_map = eyes.app.query_one(ClusterMap)
        await eyes.see(lambda: cluster_map.chosen)
        cluster_map._gpus = {}
        assert cluster_map.chosen is None
