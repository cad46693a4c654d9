"""Screens that show answers: a task in tabs, a batch, usage, the timeline, envs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from textual.widgets import Input

from agentless.errors import ControllerError
from agentless.model.text import printable
from agentless.rules.views.publish import timestamp
from agentless.tui.screens.details.batch import BatchScreen
from agentless.tui.screens.details.curves import TaskCurves
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.screens.reports.timeline import Axis
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import RECORDED, RUNS, WAITS, alone, over, tasks  # noqa: F401 - for all

NOW = RECORDED["now"]
EVENT = {"at": NOW, "event": "launched", "task": RUNS, "cause": "docker run"}
SPEC = {
    "mounts": [{"source": "/data/images", "target": "/data", "read_only": True}],
    "volumes": [], "uploads": [{"source": "/home/ann/code", "target": "."}],
}  # fmt: skip
SCRIPT = {"node": "node1", "address": "ann@h", "script": "docker run " + "-e A=1 " * 40 + "\n'line break'\n"}
USAGE = {
    "gpus": 8, "more": 0, "total": {"gpu_hours": 90.0, "share": 0.25, "tasks": 3},
    "rows": [
        {"name": "ann@laptop", "gpu_hours": 60.0, "share": 0.17, "tasks": 2, "utilization_pct": 80.0},
        {"name": "bob@pc", "gpu_hours": 30.0, "share": 0.08, "tasks": 1, "utilization_pct": None},
    ],
    "periods": [{"begins_at": f"2026-11-{day}T00:00:00Z", "gpu_hours": day * 1.0} for day in range(15, 22)],
    "ends_at": "2026-11-22T00:00:00Z",
}  # fmt: skip
ENV = {
    "name": "torch", "node": "node1", "state": "running", "version": 2, "size_bytes": 1, "nodes": [], "offline": [],
    "versions": [
        {"version": at, "size_bytes": at << 30, "message": f"change {at}", "by": "ann", "at": "2026-11-20T00:00:00Z",
         "current": at == 2, "nodes": ["node1", "node2"]} for at in (1, 2)
    ],
}  # fmt: skip


@contextlib.asynccontextmanager
async def answered(line: dict, answers: dict[str, object], size: tuple[int, int] = (120, 40)) -> AsyncIterator[Eyes]:
    """A dashboard whose controller gives these answers, by the end of the path."""
    async with over(line, size) as eyes:

        def get(path: str, **query: object) -> object:
            for end, found in answers.items():
                if path.endswith(end):
                    return found(query) if callable(found) else found
            raise ControllerError(f"nothing at {path}")

        eyes.app.client.get = get
        eyes.app.client.frames = lambda *_, **__: iter([(1, b"epoch 1\nepoch 2\n"), (2, b"careful\n")])
        yield eyes


async def test_a_task_is_shown_in_tabs(monkeypatch):
    async with answered(tasks(RUNS), {"/events": [EVENT], "/spec": SPEC, "/script": SCRIPT}) as eyes:
        await eyes.app.push_screen(TaskDetails(eyes.app.cluster, RUNS))
        await eyes.see("Summary", "Last output", "epoch 2", "node1::1 ", "48.1/80 GiB")
        await eyes.press("tab")
        await eyes.see(lambda: "owner" not in eyes.text and "careful" in eyes.text)
        await eyes.press("3", "left")
        await eyes.see("[all]", "nothing at /v1/history")
        await eyes.press("tab")
        await eyes.see("Started", "docker run")
        await eyes.press("5")
        await eyes.see("/data ", "from /data/images (read only)", "from /home/ann/code")
        await eyes.press("tab")
        await eyes.see("# node1, ann@h", "│ docker run")
        script = [line for line in eyes.text.splitlines()[4:-1] if line]
        assert [line[:2] for line in script] == [" │"] * len(script), "a row that was wrapped lost its bar"
        assert len(script) > 2
        await eyes.press("tab")
        await eyes.see("Last output")
        await eyes.press("slash", "T")
        await eyes.see(lambda: isinstance(eyes.app.screen, LogScreen) and eyes.app.screen.query_one(Input).value == "T")
        said = threading.Event()
        eyes.app.client.frames = lambda *_, **__: iter(())
        eyes.app.client.followed = lambda *_, **__: iter([(1, b"at last\n")] if said.wait(30) else [])
        await eyes.app.push_screen(LogScreen(eyes.app.cluster, RUNS, eyes.app.client))
        await eyes.see("No output yet", lambda: "Loading" not in eyes.text)
        said.set()
        await eyes.see("at last", "No more output")


async def test_the_plots_of_a_task_have_keys_for_other_ranges_once_there_are_some():
    now = RECORDED["now"]
    async with answered(tasks({**RUNS, "started_at": timestamp(now - 120)}), {}) as eyes:
        await eyes.app.push_screen(TaskDetails(eyes.app.cluster, eyes.app.cluster.tasks[RUNS["id"]]))
        await eyes.press("3")
        await eyes.see("[all]", "← → values")
        assert "Shorter" not in eyes.text
        assert "< >" not in eyes.text
        eyes.app.incoming.take({"tasks": [{**RUNS, "started_at": timestamp(now - 900)}]})
        eyes.app.screen.query_one(TaskCurves).ask()
        await eyes.see("[all] 10 min", "< > time", "Shorter")


async def test_why_a_task_waits_is_a_tab_as_long_as_it_does():
    why = {"summary": "needs 8 GPUs", "obstacles": [], "remedies": {}}
    async with answered(tasks(WAITS), {"/explain": why}) as eyes:
        await eyes.app.push_screen(TaskDetails(eyes.app.cluster, WAITS))
        await eyes.see("Why it waits")
        await eyes.press("2")
        await eyes.see("needs 8 GPUs")
        eyes.app.incoming.take({"tasks": [{**RUNS, "id": WAITS["id"]}]})
        await eyes.see(lambda: "Why it waits" not in eyes.text and "owner" in eyes.text)


async def test_a_batch_has_a_column_for_each_value_and_what_each_wrote_last():
    rows = [
        {**RUNS, "id": f"b{at}", "batch": "b0", "parameters": {"lr": f"{10**-at:g}", "seed": "1"}} for at in range(3)
    ]
    rows[0] |= {"state": "completed", "ended_at": RUNS["started_at"]}
    async with answered(tasks(*rows, WAITS), {}) as eyes:
        await eyes.press("4")
        eyes.app.view.table.choose("b1")
        await eyes.press("B")
        await eyes.see("1 of 3 tasks done", "LR", "SEED", "0.01", "careful")
        assert isinstance(eyes.app.screen, BatchScreen)
        assert WAITS["id"] not in eyes.text
        await eyes.press("slash", "lr:", "escape", "escape")
        await eyes.see("2 GPUs")


@pytest.mark.parametrize(
    "name",
    [
        "x[/]\x1b]0;t\x07",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("where", "x[/]", "[red]x", "a\x1b]0;t\x07")),
    ],
)
async def test_a_value_may_have_any_name(name):
    rows = [{**RUNS, "id": f"b{at}", "batch": "b0", "parameters": {name: "v" * 30}} for at in range(2)]
    async with answered(tasks(*rows), {}) as eyes:
        await eyes.pilot.resize_terminal(50, 20)
        await eyes.press("4", "B")
        await eyes.see(printable(name.upper()), "v" * 24)


async def test_usage_is_bars_of_owners_and_a_curve_and_the_time_can_be_chosen():
    asked = []
    async with answered(RECORDED, {"/usage": lambda query: asked.append(query) or USAGE}) as eyes:
        await eyes.press("u")
        await eyes.see(
            "90.00 GPU-hours, 25.0% of all hours of 8 GPUs",
            "ann@laptop █",
            "GPUs allocated, mean of 1d  0.9",
            "last 7 days",
        )
        assert eyes.line(" now").split() == [*(f"11-{day}" for day in range(15, 22)), "now"]
        assert "LENT" not in eyes.text
        await eyes.press("L", ">")
        await eyes.see("Usage by node, last 30 days")
        assert asked[-1]["by"] == "node"
        assert asked[-1]["edge"][-1] - asked[-1]["edge"][0] == pytest.approx(30 * 86400)


async def test_the_timeline_shows_who_ends_and_starts_when_and_what_is_reserved(monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()

    rows = [
        {**RUNS, "started_at": moment(-3600), "time_limit": 3 * 3600.0},
        {**RUNS, "id": "endless", "name": "endless"},
        {**WAITS, "expected_start": moment(7200), "time_limit": 3600.0},
        {**WAITS, "id": "unknown", "name": "unknown", "reason": "nobody knows"},
    ]
    reserved = [{"node": "node2", "gpus": [0], "owner": "eve", "reason": "paper", "begins_at": moment(6 * 3600),
                 "ends_at": moment(9 * 3600)}]  # fmt: skip
    async with answered(tasks(*rows), {"/reservations": reserved}) as eyes:
        await eyes.press("t")
        await eyes.see("The next 12 hours", "│now", "ENDS", "nobody knows", "eve paper")
        width = 120 - 44 - 13

        def bar(words: str, sign: str) -> tuple[float, int]:
            line = eyes.line(words)
            return (line.index(sign) - 45) * 12 / width, line.count(sign)

        begin, columns = bar("pretrain-a", "█")
        assert (begin, columns) == (0, pytest.approx(2 / 12 * width, abs=1))
        begin, columns = bar("ann big", "▒")
        assert (begin, columns) == (pytest.approx(2, abs=0.2), pytest.approx(1 / 12 * width, abs=1))
        begin, columns = bar("eve paper", "░")
        assert (begin, columns) == (pytest.approx(6, abs=0.2), pytest.approx(3 / 12 * width, abs=1))
        assert eyes.line("endless").endswith("→    no limit")
        ends = [datetime.fromtimestamp(NOW + hours * 3600).astimezone() for hours in (2, 3, 9)]
        for words, end in zip(("pretrain-a", "ann big", "eve paper"), ends, strict=True):
            assert eyes.line(words).endswith(f"{end:%H:%M}"), words
        await eyes.press("<")
        await eyes.see("The next 2 hours", "▸")


def test_the_times_of_an_axis_are_round_and_at_their_columns():
    axis = Axis(NOW, 43200.0, 80)
    words = axis.times()
    assert len(words) == 80
    assert words.startswith("now ")
    for word in words[3:].replace("│", " │").split():
        time = datetime.fromtimestamp(NOW).astimezone().replace(hour=int(word[1:3]), minute=int(word[4:]), second=0)
        later = (time.timestamp() - NOW) % 86400
        assert axis.column(NOW + later) == pytest.approx(words.index(word), abs=1)
        assert word.endswith(":00")


async def test_envs_are_shown_with_their_versions_and_an_empty_list_says_how_to_begin():
    answers: dict[str, object] = {"/envs": [ENV]}
    async with answered(RECORDED, answers) as eyes:
        await eyes.press("e")
        await eyes.see("torch  version 2", "▸   2", "2 GiB", "on node1 and node2", "ann: change 2")
        pushed = []
        eyes.app.client.progress = lambda *words: (
            pushed.append(words) or [{"kind": "done", "nodes": [{"node": "node3", "error": ""}]}]
        )
        eyes.app.notify = lambda words, **_: eyes.notes.append(words)
        await eyes.press("j", "C")
        await eyes.see("Push env torch to nodes?", "version 2 is on node1 and node2", "node3")
        await eyes.press("enter")
        await eyes.see(lambda: eyes.notes == ["torch is on 1 of 1 node"])
        assert pushed == [("/v1/envs/torch/push", {"nodes": ["node3"]})]
        eyes.app.client.terminal = lambda *words, **more: pushed.append((*words, more["of"])) or ControllerError("gone")
        await eyes.press("s")
        await eyes.see(lambda: "gone" in eyes.messages)
        assert pushed[-1] == ("torch", "envs")
        answers["/envs"] = []
        await eyes.press("escape", "e")
        await eyes.see("agentless env create")


async def test_an_error_is_shown_where_the_answer_would_be():
    async with answered(RECORDED, {}) as eyes:
        await eyes.press("u")
        await eyes.see("nothing at /v1/usage")


async def test_reports_have_addresses_and_no_keys_for_what_they_do_not_show():
    async with answered(RECORDED, {"/envs": [ENV], "/reservations": [], "/usage": USAGE}) as eyes:
        for path, words in (("/timeline", "The next "), ("/envs", "torch"), ("/usage", "Usage by owner")):
            eyes.app.go_to(path)
            await eyes.see(words, lambda: "n New" not in eyes.text)
            assert eyes.app.places.here.path == path
        eyes.app.go_to("/nodes")
        await eyes.see("REASON", lambda: len(eyes.app.screen_stack) == 1)


async def test_the_timeline_is_as_long_as_what_is_on_it(monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    begun = datetime.fromtimestamp(NOW - 60, UTC).isoformat()
    async with answered(tasks({**RUNS, "started_at": begun, "time_limit": 600.0}), {"/reservations": []}) as eyes:
        await eyes.press("t")
        await eyes.see("The next 30 minutes")
        await eyes.press(">")
        await eyes.see("The next 2 hours")
