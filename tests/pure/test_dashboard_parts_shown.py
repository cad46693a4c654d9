"""What the dashboard does not show, and how to see it; and what dialogs and the list of commands say."""

from __future__ import annotations

import pytest
from textual import events
from textual.binding import Binding
from textual.widgets import Static

from agentless.client.console import in_font
from agentless.rules.views.publish import timestamp
from agentless.tui.app import SEEN, Dashboard
from agentless.tui.data import log_source
from agentless.tui.data.actions import ACTIONS, Target, about, details
from agentless.tui.data.log_source import SpooledLog
from agentless.tui.screens.ask import Ask
from agentless.tui.screens.details.batch import BatchScreen
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.events import event_words
from agentless.tui.screens.logs.pane import LogPane
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.screens.overview.map import ClusterMap
from agentless.tui.screens.overview.news import News
from agentless.tui.screens.overview.view import Overview
from agentless.tui.screens.reports.envs import EnvReport
from agentless.tui.screens.reports.timeline import Timeline
from agentless.tui.screens.reports.usage import UsageReport
from agentless.tui.screens.tasks import Tasks
from agentless.tui.screens.view import View
from agentless.tui.screens.vps.snapshots import Snapshots
from agentless.tui.screens.workflows.graph import WorkflowScreen
from agentless.tui.widgets.curves import Curves
from agentless.tui.widgets.log_lines import Log
from agentless.tui.widgets.table import Body, Table, Titles
from tests.fleet.eyes import Eyes
from tests.pure.scene import cluster as scene
from tests.pure.test_dashboard_views import (
    FAILED,
    NODE,
    RECORDED,
    RUNS,
    WAITS,
    WORKFLOW,
    alone,  # noqa: F401 - a fixture for all
    drawn,
    over,
    tasks,
)
from tests.pure.walk import OPENED, dashboard, settle

BY_NAME = {act.name: act for act in ACTIONS}


# ------------------------------------------------------------------------------- parts


async def test_a_filter_says_how_many_rows_it_leaves_and_how_to_see_all():
    async with over(tasks(RUNS, WAITS, FAILED)) as eyes:
        await eyes.press("4", "slash", "state:running", "enter")
        await eyes.see("1 of 3 rows match (press Esc for all)")
        await eyes.press("escape")
        await eyes.see(lambda: "rows match" not in eyes.text)


async def test_tasks_that_are_hidden_by_a_key_are_told_with_the_key():
    async with over(tasks(RUNS, FAILED)) as eyes:
        await eyes.press("4", "m", "a")
        await eyes.see("only your tasks (press m for all)", "1 ended tasks hidden (press a to show)")
        await eyes.press("m", "a")
        await eyes.see(lambda: "press m" not in eyes.text and "press a" not in eyes.text)


async def test_columns_without_room_are_named_and_are_there_in_a_wider_window():
    async with over(RECORDED, (80, 24)) as eyes:
        await eyes.press("2")
        await eyes.see("hidden columns: MODEL, TREND 10 min, POWER")
        await eyes.pilot.resize_terminal(160, 24)
        await eyes.see("MODEL", lambda: "hidden:" not in eyes.text)


async def test_the_newest_of_very_many_ended_tasks_are_said_to_be_these():
    text = await drawn(tasks(*({**FAILED, "id": f"t{at}"} for at in range(1000))), "4")
    assert "last 1,000 ended tasks (older: agentless ps --all --limit N)" in text


async def test_who_is_new_here_is_told_the_keys_once(tmp_path):
    (tmp_path / "agentless" / SEEN).unlink()
    assert "New here?" in await drawn(RECORDED)
    assert "New here?" not in await drawn(RECORDED)


async def test_news_that_do_not_fit_are_counted():
    waits = [{**WAITS, "id": f"{at}", "batch": f"{at}", "position": at} for at in range(1, 20)]
    async with over(tasks(*waits)) as eyes:
        await eyes.see(" more lines (press ])")


@pytest.mark.parametrize("width", [60, *(pytest.param(width, marks=pytest.mark.slow) for width in (80, 200))])
async def test_all_views_and_the_key_of_the_help_are_seen_at_any_width(width):
    text = await drawn(RECORDED, "4", size=(width, 20))
    assert "7 VPS" in text.splitlines()[0]
    assert "? Keys" in text.splitlines()[-1]


async def test_the_keys_are_shown_also_while_the_window_or_page_has_no_focus():
    async with over(RECORDED, (80, 20)) as eyes:
        eyes.app.post_message(events.AppBlur())
        await eyes.pilot.pause()
        await eyes.pilot.pause()
        assert "Details / Search" in eyes.text.splitlines()[-1]


async def test_what_is_cut_in_a_narrow_table_says_so():
    text = await drawn(tasks({**RUNS, "command": ["python", "train.py", "--a-long-option", "7"]}), "4", size=(60, 20))
    assert text.splitlines()[3].endswith("…")


# -------------------------------------------------------------------------------- logs


def spooled(eyes: Eyes, *said: tuple[int, bytes]) -> LogPane:
    """The log of the task, as far as it came."""
    pane = eyes.app.screen.query_one(LogPane)
    pane.spool = SpooledLog()
    for frame in said:
        pane.spool.add(*frame)
    pane.log_lines.show(pane.spool)
    return pane


@pytest.mark.slow
async def test_a_log_of_which_the_beginning_is_gone_says_so(monkeypatch):
    monkeypatch.setattr(log_source, "SPOOL", 1 << 18)
    async with over(tasks(RUNS)) as eyes:
        await eyes.press("4", "l")
        spooled(eyes, *((1, b"line %d\n" % at * 1000) for at in range(60)))
        await eyes.see("60,000 lines", "lines are not here (press X to export all)")


async def test_which_lines_are_in_view_is_told_beside_how_many_there_are():
    async with over(tasks(RUNS), (120, 20)) as eyes:
        await eyes.press("4", "l")
        pane = spooled(eyes, *((1 + at % 2, b"line %d\n" % at) for at in range(1000)))
        await eyes.see("1,000 lines", "line 999")
        pane.log_lines.go_to(499)
        await eyes.see("495-511 of 1,000 lines, 51 %", "line 499")
        await eyes.press("2")
        await eyes.see("500 lines", "only stderr (press 2 for both)", "line 999", lambda: "line 998" not in eyes.text)


async def test_a_line_that_is_cut_at_the_edge_says_so_and_wrapped_rows_are_not_counted_as_lines():
    async with over(tasks(RUNS), (90, 20)) as eyes:
        await eyes.press("4", "l")
        spooled(eyes, (1, b"x" * 100 + b"\nshort\n"))
        await eyes.see("xxx…", "short")
        await eyes.press("w")
        await eyes.see(lambda: "…" not in eyes.text, "2 lines ", "wrapped")


@pytest.mark.parametrize(
    "places",
    [
        [("40%", 399), ("5000", 999)],
        pytest.param([("1", 0), ("0%", 0), ("100%", 999), ("1,000", 999)], marks=pytest.mark.slow),
    ],
)
async def test_a_line_or_a_percentage_can_be_gone_to_and_without_times_no_time(places):
    async with over(tasks(RUNS), (120, 20)) as eyes:
        await eyes.press("4", "l")
        pane = spooled(eyes, (1, b"".join(b"line %d.\n" % at for at in range(1000))))
        for typed, line in places:
            await eyes.press("J", "ctrl+u", typed, "enter")
            await eyes.see(f"line {line}.")
            assert not pane.log_lines.follows
        eyes.app.notify = lambda words, **_: eyes.notes.append(words)
        await eyes.press("J", "ctrl+u", "10min", "enter")
        assert eyes.notes == ["This log has no times; go to a line such as 1200, or a percentage such as 40%"]


@pytest.mark.slow
async def test_with_times_a_time_can_be_gone_to():
    async with over(tasks(RUNS), (120, 20)) as eyes:
        await eyes.press("4", "l")
        pane = spooled(eyes)
        for hour in range(24):
            pane.spool.now_at(f'["t1",[0,0],[["2026-11-22T{hour:02}:00:00.000000000Z",5],null,null]]')
            pane.spool.add(1, b"hour %d\n" % hour + b"more\n" * 50)
        await eyes.press("J", "2026-11-22T09:00Z", "enter")
        await eyes.see("hour 9")


async def test_a_search_goes_on_at_the_other_end_and_says_when_there_is_nothing():
    async with over(tasks(RUNS), (120, 20)) as eyes:
        await eyes.press("4", "l")
        log = spooled(eyes, (1, b"".join(b"line %d.\n" % at for at in range(1000)))).log_lines
        eyes.app.notify = lambda words, **_: eyes.notes.append(words)
        await eyes.see("line 999.")
        await eyes.press("slash", "LINE 7.")
        await eyes.see("LINE 7.")  # what is typed
        await eyes.press("enter")
        await eyes.see("line 7.", "/LINE 7.: 1 of 1", lambda: log.match == 7)
        await eyes.press("slash", "ctrl+u", "line 5", "enter")
        await eyes.see(lambda: log.match == 50, "/line 5: 2 of 111")
        for key, line in (("N", 5), ("N", 599), ("n", 5), ("n", 50)):
            await eyes.press(key)
            await eyes.see(lambda line=line: log.match == line, f"line {line}.")
        await eyes.press("slash", "ctrl+u", "nowhere", "enter")
        await eyes.see(lambda: eyes.notes == ["'nowhere' not found"])
        await eyes.press("escape")
        await eyes.see(lambda: "/nowhere" not in eyes.text and eyes.app.screen.query(LogPane))
        await eyes.press("escape")
        await eyes.see("1 Overview")


async def test_two_logs_are_read_side_by_side_and_keys_are_for_the_one_in_front():
    async with over(tasks(RUNS, FAILED), (120, 30)) as eyes:
        await eyes.press("4", "l", "|")
        await eyes.see("Which log beside this one?", FAILED["id"])
        assert RUNS["id"] not in "".join(eyes.text.splitlines()[2:]), "the log that is open"
        await eyes.press("enter")
        await eyes.see(lambda: len(eyes.app.screen.query(LogPane)) == 2, f"▌ {FAILED['id']}", RUNS["id"])
        first, second = (pane.log_lines for pane in eyes.app.screen.query(LogPane))
        assert eyes.app.screen.about_task["id"] == FAILED["id"]
        await eyes.press("w")
        assert (first.wraps, second.wraps) == (False, True)
        await eyes.press("tab")
        await eyes.see(f"▌ {RUNS['id']}")
        assert eyes.app.screen.about_task["id"] == RUNS["id"]
        await eyes.press("escape")
        await eyes.see(lambda: RUNS["id"] not in eyes.text, FAILED["id"])
        await eyes.press("escape")
        await eyes.see("1 Overview")


# ----------------------------------------------------------------------------- dialogs


@pytest.mark.parametrize("key", ["T", pytest.param("K", marks=pytest.mark.slow)])
async def test_what_ends_a_task_names_it_and_says_what_it_does(key):
    async with over(tasks({**RUNS, "command": ["python", "train.py"]})) as eyes:
        await eyes.press("4", key)
        verb, signal = {"T": ("Stop", "SIGTERM now, and SIGKILL"), "K": ("Kill", "SIGKILL immediately")}[key]
        await eyes.see(f"{verb} task {RUNS['id']} ({RUNS['name']})?", f"running on {RUNS['node']}::", RUNS["owner"])
        await eyes.see("python train.py", signal, f"{verb} (y)", "Cancel (n)")
        await eyes.press("n")
        await eyes.see(lambda: "Cancel (n)" not in eyes.text)


@pytest.mark.parametrize("act", [act for act in ACTIONS if act.effect], ids=lambda act: act.name)
def test_every_dialog_names_what_it_acts_on(act):
    target = Target(RUNS, NODE, WORKFLOW if act.name.endswith("_workflow") else None)
    name = NODE["name"] if act.name in ("drain", "resume_node") else (target.workflow or RUNS)["id"]
    assert name in about(act, target)
    assert details(act, target)


def test_a_node_is_drained_with_its_tasks_in_view():
    assert details(BY_NAME["drain"], Target(None, {**NODE, "state": "online", "tasks": 3, "reason": ""})) == [
        "online, 3 tasks still running"
    ]


# ---------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "places", [("7", "4d"), pytest.param((*"1234568", "4l", "n", "7n"), marks=pytest.mark.slow)], ids=" ".join
)
async def test_the_list_of_commands_has_each_once_in_words(places):
    """And no view, on a screen on top."""
    async with over(RECORDED) as eyes:
        for place in places:
            await eyes.press(*place)
            await eyes.pilot.pause()
            commands = list(eyes.app.get_system_commands(eyes.app.screen))
            titles = [command.title for command in commands]
            assert len(set(titles)) == len(titles), place
            assert all(": " in title for title in titles), place
            keys = [
                key for c in commands if c.help.startswith("Key ") for key in c.help[4:].split(" · ")[0].split(", ")
            ]
            assert len(set(keys)) == len(keys), place
            on_top = len(eyes.app.screen_stack) > 1
            assert on_top != any("show this view" in title for title in titles), place
            while len(eyes.app.screen_stack) > 1:
                await eyes.press("escape")


async def test_a_command_names_what_it_acts_on():
    async with over(tasks(RUNS)) as eyes:
        await eyes.press("4", ":", "stop")
        await eyes.see("Stop: stop the task", f"task {RUNS['id']} ({RUNS['name']})")


async def test_the_help_has_a_line_for_each_key_on_80_columns():
    async with over(RECORDED, (80, 100)) as eyes:
        await eyes.press("question_mark")
        await eyes.see("GPU symbols")
        shown = eyes.text[eyes.text.index("╭") : eyes.text.index("╰")].splitlines()[1:]
        lines = [line.strip(" │") for line in shown]
        rows = [line for line in shown if line.startswith("│   ") and line.strip(" │")]
        titles = ["Here: Overview", "Views", "Actions", "Details and reports", "Log", "Form"]
        titles += ["GPU symbols, when many share a line"]
        assert [line for line in lines if line in titles] == titles
        assert "start no new tasks on the node" in "".join(lines[: lines.index("Views")])
        assert len(rows) == len([line for line in lines if line]) - len(titles), "a line was broken"


def test_a_key_means_one_thing_wherever_it_is_pressed():
    """Of letters that are no movement; in the log, n and N are those of every search."""
    classes = (Dashboard, View, Tasks, Body, Overview, ClusterMap, LogScreen, Log, TaskDetails, Curves, Timeline,
               UsageReport, EnvReport, Snapshots, WorkflowScreen, BatchScreen)  # fmt: skip
    meanings: dict[str, set[str]] = {}
    for shown in classes:
        for binding in Binding.make_bindings(shown.BINDINGS):
            if len(binding.key) == 1 and binding.key.isalpha() and binding.key not in "jkhgGq":
                meanings.setdefault(binding.key, set()).add(binding.description)
    several = {key: words for key, words in meanings.items() if len(words) > 1}
    assert several == {
        "n": {"New", "Next"}, "N": {"Copy", "Previous"},  # in the log, those of every search
        "R": {"Retry", "Start", "Restart", "Retry failed"}, "T": {"Stop", "Stop all"},  # the same for another thing
    }  # fmt: skip


async def test_a_palette_that_is_closed_while_it_searches_does_not_end_the_dashboard():
    async with over(RECORDED) as eyes:
        await eyes.press("colon")
        palette = eyes.app.screen
        await eyes.press("escape")
        search = palette._gather_commands("late")  # what a key just before Esc begins
        await eyes.see(lambda: search.is_finished)
        assert search.error is not None
        await eyes.press("4")
        await eyes.see("COMMAND")


# ------------------------------------------------------------------------------- keys at once


async def test_end_counts_although_what_it_is_for_is_still_loading():
    async with dashboard(scene(3), (80, 12)) as eyes:
        for name in ("gpu", "task", "usage", "workflow", "log"):
            eyes.app.push_screen(OPENED[name](eyes.app))
            eyes.app.post_message(events.Key("end", None))
            await settle(eyes)
            scrolled = [each for each in eyes.app.screen.query("*") if each.region.area and each.max_scroll_y]
            assert [each.scroll_y == each.max_scroll_y for each in scrolled] == [True], name
            await eyes.press("up")
            assert scrolled[0].scroll_y < scrolled[0].max_scroll_y or name == "workflow"  # there the cursor moves
            eyes.app.pop_screen()


async def test_a_key_that_follows_an_answer_at_once_is_for_what_is_below_the_question():
    async with over(tasks(RUNS)) as eyes:
        app, answers = eyes.app, []
        for answer, text in (("enter", ""), ("enter", "Message"), ("y", "")):
            app.push_screen(TaskDetails(app.cluster, RUNS))
            app.push_screen(Ask("Stop it?", effect="It ends.", verb="Stop", text=text), answers.append)
            await eyes.see("Stop it?")
            for key in (answer, "q"):
                app.post_message(events.Key(key, key if len(key) == 1 else None))
            await eyes.see(lambda: len(app.screen_stack) == 1)
        assert answers == [None, "", ""]


async def test_an_answer_has_all_that_was_typed_before_enter_however_fast():
    async with over(tasks(RUNS)) as eyes:
        answers: list[str | None] = []
        eyes.app.push_screen(Ask("Drain it?", effect="It ends.", verb="Drain", text="Reason"), answers.append)
        await eyes.see("Drain it?")
        for key in "broken fan":
            eyes.app.post_message(events.Key("space" if key == " " else key, key))
        eyes.app.post_message(events.Key("enter", None))
        await eyes.see(lambda: answers == ["broken fan"])


async def test_a_table_is_never_painted_with_values_under_other_titles(monkeypatch):
    """Its first frame is like its last one."""
    painted: dict[Table, list[object]] = {}

    def watched(kind: type, name: str) -> None:
        paint = getattr(kind, name)

        def painting(self: Titles | Body, *args: object) -> object:
            found = paint(self, *args)
            if self._table.rows and self._table.size.width:
                painted.setdefault(self._table, []).append(self._table._layout())
            return found

        monkeypatch.setattr(kind, name, painting)

    watched(Titles, "render")
    watched(Body, "render_line")
    async with dashboard(scene(3), (160, 50)) as eyes:
        for key in ("2", "3", "4", "5"):
            await eyes.press(key)
            await settle(eyes)
    assert len(painted) >= 4
    for table, layouts in painted.items():
        assert layouts == [layouts[-1]] * len(layouts), table.parent


async def test_what_the_screen_names_is_there_by_the_key_that_it_names():
    lately = {**RUNS, "id": "2bad", "name": "bad", "state": "timeout", "ended_at": timestamp(RECORDED["now"] - 60)}
    async with over(tasks(RUNS, {**lately, "retried_as": None}), (80, 24)) as eyes:
        eyes.app.incoming.take_event({"seq": 9, "at": 0.0, "kind": "task", "event": "exited", "task": lately})
        sick = {"kind": "node", "node": "node1", "state": "online", "event": "unhealthy", "cause": "GPU 7: ECC"}
        eyes.app.incoming.take_event({"seq": 10, "at": 0.0, **sick})
        assert event_words(sick) == ("Unhealthy", "bad")
        await eyes.see("failed in the last 10 minutes; press F to list them")
        assert any("Unhealthy: GPU 7: ECC" in line[1][0] for line in eyes.app.query_one(News)._of_events(80))
        assert any("2bad ann bad " in line[0][0] for line in eyes.app.query_one(News)._of_events(80))
        await eyes.press("F")
        await eyes.see("2bad", "state:failed,killed_oom,timeout", lambda: RUNS["id"] not in eyes.text)
        await eyes.press("escape", "c")
        assert any(each.message == f"Colors: {eyes.app.theme}" for each in eyes.app._notifications)
        await eyes.press("?")
        pages = [str(page.render()) for page in eyes.app.screen.query(Static)]
        assert all(key in pages[0] for key in ("\n  o ", "\n  O ", "\n  i ", "\n  X ", "\n  Esc "))
        assert not any(key in pages[1] for key in ("  o O", "  i ", "  X ", "  m  a", "  Esc "))
        await eyes.press("escape", "l", "|")
        await eyes.see("Which log beside this one? Enter chooses, / filters, Esc cancels", "Enter Choose")


def test_the_palette_has_signs_that_the_linux_console_has():
    assert "🔎".translate(in_font({"TERM": "linux"})) == "/ "
