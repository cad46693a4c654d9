"""The dashboard over simulated nodes, n1 with four GPUs and n2 with two: what is seen, and what keys do."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from agentless import paths
from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from agentless.model.tasks.task_id import first_try
from agentless.tui.data.actions import ACTIONS
from tests.fleet.client import IMAGE
from tests.fleet.eyes import looking
from tests.fleet.inhabited import end_controller, forget_tasks, inhabited
from tests.fleet.world import World

LONG = "sleep 600"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 4), NodePlan("n2", 2)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    for name in ("n1", "n2"):
        client.post(f"/v1/nodes/{name}/resume", {})
    forget_tasks(client)


def submit(client: Client, target: str = "n1::0", script: str = LONG, **spec: object) -> str:
    """A task that runs or waits, as another shell would start it; its first try."""
    command = ["sh", "-c", script]
    asked = {
        "targets": target.split()[-1:],
        "spec": {"command": command, "image": IMAGE, "needs": {"nodes": target.split()[:-1]}, **spec},
    }
    (start,) = client.post("/v1/tasks", asked)
    assert start["task"], start["message"]
    return first_try(start["task"]["id"])


# ------------------------------------------------------------------------ what is seen


@pytest.mark.slow
async def test_the_overview_shows_each_gpu_with_its_holder_and_who_waits_and_why(client):
    submit(client, name="resnet")
    submit(client, "n1 4x")
    async with looking() as eyes:
        await eyes.see("resnet", "3 of 4 free", "5/6 GPUs free", "1 running", "1 pending")
        await eyes.see("needs n1 4x", "needs 4 GPUs; 3 of 4 on n1 are free")


async def test_what_another_shell_submits_appears_and_disappears_by_itself(client):
    async with looking() as eyes:
        await eyes.press("4")
        task = submit(client, script="exit 3")
        await eyes.see(task, "failed (3)")
        client.delete(f"/v1/tasks/{task}")
        await eyes.see(lambda: task not in eyes.text)


@pytest.mark.slow
async def test_each_view_shows_its_own(client):
    runs, waits = submit(client, name="first"), submit(client, "n1::0", name="second")
    async with looking((160, 40)) as eyes:
        for key, words in {
            "2": ("MODEL", "POWER", "first"),
            "3": ("DOCKER", "3/4", "demo@127.0.0.1"),
            "4": (runs, waits, "running", "pending", "n1::0"),
            "5": (waits, "REASON", "held by task"),
            "6": (runs, "Started", "docker run on n1 answered"),
            "1": ("n1 online", "n2 online"),
        }.items():
            await eyes.press(key)
            await eyes.see(*words)


async def test_tab_goes_through_the_views_and_back(client):
    async with looking() as eyes:
        await eyes.press("tab", "tab")
        assert eyes.app.view.id == "nodes"
        await eyes.press("shift+tab")
        assert eyes.app.view.id == "gpus"


async def test_a_node_that_is_cut_off_is_shown_as_a_problem_and_so_is_its_return(world, client):
    async with looking() as eyes:
        world.do(world.nodes["n2"].cut)
        await eyes.see("n2 offline", "! n2", "problem")
        world.do(world.nodes["n2"].restore)
        await eyes.see("n2 online")
        await eyes.see(lambda: "! n2" not in eyes.text)


async def test_top_shows_the_overview_alone_and_changes_nothing(client):
    task = submit(client, name="resnet")
    async with looking(read_only=True, only="overview") as eyes:
        await eyes.see("resnet")
        await eyes.press("4", "T", "y")
        assert "2 GPUs" not in eyes.text
        assert eyes.state(task) == "running"


# ----------------------------------------------------------------------------- tables


@pytest.mark.slow
async def test_a_filter_leaves_only_the_rows_that_have_its_words(client):
    tasks = [submit(client, f"n1::{at}", name=name) for at, name in enumerate(("alpha", "beta", "gamma"))]
    submit(client, "n1::0", name="waits")
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see("alpha", "beta", "gamma", "waits")
        await eyes.press("slash", "bet", "enter")
        await eyes.see(lambda: "alpha" not in eyes.text and tasks[1] in eyes.text)
        await eyes.press("escape", "slash", "state:running !gamma", "enter")
        await eyes.see(lambda: all(t in eyes.text for t in tasks[:2]))
        assert tasks[2] not in eyes.text
        assert "waits" not in eyes.text
        await eyes.press("escape")
        await eyes.see("gamma", "waits")


@pytest.mark.slow
async def test_rows_are_sorted_by_the_title_that_is_clicked_and_twice_the_other_way_round(client):
    for at, name in enumerate(("beta", "alpha", "gamma")):
        submit(client, f"n1::{at}", name=name)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see("alpha", "beta", "gamma")

        def order() -> list[str]:
            return [
                word for line in eyes.text.splitlines() for word in line.split() if word in ("alpha", "beta", "gamma")
            ]

        titles = eyes.app.view.table.titles
        column = eyes.line("NAME").index("NAME")
        await eyes.pilot.click(titles, offset=(column, 0))
        await eyes.see(lambda: order() == ["alpha", "beta", "gamma"])
        await eyes.pilot.click(titles, offset=(column, 0))
        await eyes.see(lambda: order() == ["gamma", "beta", "alpha"])


@pytest.mark.slow
async def test_the_cursor_stays_on_its_row_when_others_come_and_go(client):
    first, second = submit(client, "n1::0"), submit(client, "n1::1")
    async with looking() as eyes:
        await eyes.press("4", "j")
        await eyes.see(lambda: eyes.app.target.task and eyes.app.target.task["id"] == first)
        submit(client, "n1::2")
        await eyes.see(lambda: len(eyes.app.view.table.rows) == 3)
        assert eyes.app.target.task["id"] == first
        client.post(f"/v1/tasks/{second}/kill")
        await eyes.see(lambda: eyes.state(second) == "killed")
        assert eyes.app.target.task["id"] == first


@pytest.mark.slow
async def test_a_key_does_nothing_to_the_neighbour_of_a_row_that_has_gone(client):
    first, second = submit(client, "n1::0"), submit(client, "n1::1")
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(first, second)
        chosen = eyes.app.target.task["id"]
        await eyes.press("slash", "state:running", "enter", "p")
        await eyes.see(lambda: len(eyes.app.view.table.rows) == 1)
        assert eyes.app.target.task is None
        await eyes.press("p", "j", "p")
        await eyes.see(lambda: not eyes.app.view.table.rows)
        assert {eyes.state(first), eyes.state(second)} == {"paused"}
        await eyes.press("escape")
        await eyes.see(chosen)


@pytest.mark.slow
async def test_a_row_that_comes_above_the_first_one_is_not_what_is_meant(client):
    first = submit(client, "n1::0")
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(lambda: eyes.app.target.task and eyes.app.target.task["id"] == first)
        submit(client, "n1::2")
        await eyes.see(lambda: len(eyes.app.view.table.rows) == 2)
        assert eyes.app.target.task["id"] == first


async def test_of_a_task_that_was_tried_again_the_chosen_try_is_meant(client):
    task = submit(client, script="exit 3", terms={"retries": 1, "backoff": 0.1})
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(lambda: eyes.app.cluster.tasks.get(f"{task}-2", {}).get("state") == "failed")
        eyes.app.view.table.choose(task)
        await eyes.see(lambda: eyes.app.target.task and eyes.app.target.task["id"] == task)
        await eyes.press("x", "y")
        await eyes.see(lambda: [row["id"] for row in eyes.app.view.table.rows] == [f"{task}-2"])


@pytest.mark.slow
async def test_only_mine_and_only_what_lives(client):
    mine = submit(client, "n1::0")
    ended = submit(client, "n1::1", "true")
    client.wait(ended)
    others = submit(Client(paths.state_dir(), None, "bob@elsewhere"), "n1::2")
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(mine, ended, others)
        await eyes.press("m")
        await eyes.see(lambda: others not in eyes.text and mine in eyes.text)
        await eyes.press("a")
        await eyes.see(lambda: ended not in eyes.text and mine in eyes.text)


# ------------------------------------------------------------------------------- acts


async def test_a_task_is_submitted_from_the_form_and_shown(client):
    async with looking() as eyes:
        await eyes.press("4", "n")
        await eyes.see("Where", "Command")
        await eyes.press("n1::2", "tab", shlex.join(["sh", "-c", "echo $COLOUR; sleep 600"]))
        await eyes.press("tab", IMAGE, "tab", "tab", "from-the-form")
        eyes.app.screen.query_one("#env").load_text("COLOUR=green")
        await eyes.see("would start now, on n1::2")
        await eyes.press("ctrl+s")
        await eyes.see("from-the-form", "running", "n1::2", lambda: eyes.app.target.task)
        (task,) = client.get("/v1/tasks")
        assert eyes.app.target.task["id"] == task["id"]
        frames = client.frames(f"/v1/tasks/{task['id']}/logs", follow=True)
        assert next(frames) == (1, b"green\n")


@pytest.mark.slow
async def test_the_form_begins_with_the_free_gpu_that_is_chosen_and_can_repeat_a_task(client):
    task = submit(client, "n1::3", name="again", env={"SEED": "7"}, labels={"project": "mice"}, workdir="/tmp")
    async with looking() as eyes:
        await eyes.press("2", "j", "n")
        await eyes.see(lambda: "n1::1" in eyes.line("Where"))
        await eyes.press("escape", "4", "N")
        await eyes.see(lambda: "n1::3" in eyes.line("Where") and "sleep 600" in eyes.line("Command"))
        await eyes.see("held by task", "SEED=7")
        await eyes.press("ctrl+s")
        await eyes.see("pending")
        (waits,) = client.get("/v1/queue")
        assert client.get(f"/v1/tasks/{waits['id']}/spec") == client.get(f"/v1/tasks/{task}/spec")


async def test_what_cannot_be_meant_is_said_in_the_form_and_nothing_is_sent(client):
    async with looking() as eyes:
        await eyes.press("3", "n")
        for fields, words in (
            ({"target": "n9::0", "command": "true"}, "n9"),
            ({"target": "1x", "command": "echo 'open"}, "command: no closing quotation"),
            ({"target": "1x", "command": "true", "memory": "lots"}, "'lots' is not a size"),
            ({"target": "1x", "command": "true", "cores": "four"}, "cores 'four' is not a number"),
            ({"target": "", "command": "true"}, "No resources requested"),
            ({"target": "1x", "command": ""}, "Enter a command"),
        ):
            for name, value in ({"memory": "", "cores": ""} | fields).items():
                setattr(eyes.app.screen.query_one(f"#{name}"), "text" if name == "command" else "value", value)
            await eyes.press("ctrl+s")
            await eyes.see(words)
            assert client.get("/v1/tasks", ended=True) == []


@pytest.mark.slow
async def test_a_stop_is_asked_for_first(client):
    task = submit(client, script="trap exit TERM; sleep 600 & wait")
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("T")
        await eyes.see(f"Stop task {task}", "SIGTERM now, and SIGKILL")
        await eyes.press("n")
        await eyes.see(lambda: "Stop " + task not in eyes.text)
        assert client.get(f"/v1/tasks/{task}")["state"] == "running"
        await eyes.press("T", "y")
        await eyes.see("stopped")


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "state"), [(("K", "y"), "killed"), (("p",), "paused"), (("p", "p"), "running")])
async def test_a_key_brings_a_task_into_another_state(client, keys, state):
    task = submit(client)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        for key in keys:
            before = eyes.state(task)
            await eyes.press(key)
            if key != "K":
                await eyes.see(lambda before=before: eyes.state(task) != before)
        assert eyes.state(task) == state
        assert client.get(f"/v1/tasks/{task}")["state"] == state


@pytest.mark.slow
async def test_an_ended_task_is_tried_again_and_one_is_forgotten(client):
    task = submit(client, script="exit 1")
    client.wait(task)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("R")
        await eyes.see(f"{task}-2")
        client.wait(f"{task}-2")
        await eyes.see(lambda: eyes.state(f"{task}-2") == "failed")
        await eyes.press("home", "x", "y")
        await eyes.see(lambda: f"{task}-2" not in eyes.app.cluster.tasks)


async def test_who_waits_is_put_on_top(client):
    submit(client)
    first, second = submit(client), submit(client)
    async with looking() as eyes:
        await eyes.press("5")
        await eyes.see(first, second)
        await eyes.press("j", "U")
        await eyes.see(lambda: [row["id"] for row in eyes.app.view.table.rows] == [second, first])


async def test_a_node_is_drained_with_a_reason_and_let_in_again(client):
    async with looking() as eyes:
        await eyes.press("3", "D")
        await eyes.see("Drain node n1?", "Its running")
        await eyes.press("new disks", "enter")
        await eyes.see("drained", "new disks")
        assert client.get("/v1/nodes/n1")["drained"]
        await eyes.press("E", "y")
        await eyes.see(lambda: eyes.app.cluster.nodes["n1"]["state"] == "online")


async def test_a_terminal_that_cannot_be_lent_to_a_shell_is_told_so(client):
    task = submit(client)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("s")
        await eyes.see("This terminal cannot open a shell", task)


@pytest.mark.slow
async def test_commands_of_the_palette_are_those_of_the_screen(client):
    submit(client, script="echo hello; sleep 600")
    async with looking() as eyes:
        await eyes.press("4", "ctrl+p", "sort")
        await eyes.see("Sort: sort by the previous column", "Key O")
        await eyes.press("escape")
        await eyes.see("running")
        await eyes.press("l")
        await eyes.see("hello")
        await eyes.press("colon", "wrap", "enter")
        await eyes.see("wrapped")


async def test_a_theme_that_there_is_not_any_more_is_passed_over(client):
    paths.config_dir().mkdir(parents=True, exist_ok=True)
    (paths.config_dir() / "theme").write_text("no-such-theme\n")
    async with looking() as eyes:
        await eyes.see("n1 online")


@pytest.mark.slow
async def test_a_controller_that_says_nothing_is_told(client):
    async with looking() as eyes:
        await eyes.see("n1 online")
        pid = client.get("/v1/controller")["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            await eyes.see("No answer from the controller for")
        finally:
            os.kill(pid, signal.SIGCONT)
        await eyes.see("n1 online", "free")


async def test_what_is_refused_is_said(client):
    task = submit(client)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("T")
        client.delete(f"/v1/tasks/{task}", force=True)
        await eyes.press("y")
        await eyes.see(f"no task '{task}-1'")


async def test_a_read_only_dashboard_offers_nothing_that_changes_anything(client):
    task = submit(client)
    async with looking(read_only=True) as eyes:
        await eyes.press("4")
        await eyes.see(task, "read only")
        for act in ACTIONS:
            if act.changes:
                await eyes.press(act.key)
                assert len(eyes.app.screen_stack) == 1, act.name
        assert client.get(f"/v1/tasks/{task}")["state"] == "running"


async def test_every_act_is_in_the_help_and_those_that_do_something_now_in_the_palette(client):
    submit(client)
    async with looking((120, 80)) as eyes:
        await eyes.press("4", "question_mark")
        await eyes.see(*(act.help for act in ACTIONS))
        await eyes.press("escape", "colon", "stop: stop")
        await eyes.see("Stop: stop the task or VPS: SIGTERM, then SIGKILL", "Key T")


# ---------------------------------------------------------------------- screens on top


async def test_a_log_is_followed_searched_and_saved(client, tmp_path):
    script = (
        "for n in $(seq 1 40); do echo line $n; done; echo oops >&2; while [ ! -e go ]; do sleep 0.05; done; echo last"
    )
    task = submit(client, script=script)
    async with looking((100, 20)) as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("l")
        await eyes.see("line 40", "Following", "41 lines")
        await eyes.press("slash", "ctrl+u", "LINE 7", "enter")
        await eyes.see("line 7")
        assert "line 40" not in eyes.text
        await eyes.press("2")
        await eyes.see(lambda: "oops" in eyes.text and "line 7" not in eyes.text, "only stderr")
        await eyes.press("2", "f")
        await eyes.see("line 40")
        client.post(f"/v1/tasks/{task}/kill")
        await eyes.see("killed", "No more output")
        await eyes.press("X", "ctrl+u", str(tmp_path / "saved.log"), "enter")
        await eyes.see(lambda: "Saved to" in eyes.messages)
        saved = (tmp_path / "saved.log").read_text().splitlines()
        assert sorted(saved) == sorted([*(f"line {n}" for n in range(1, 41)), "oops"])


@pytest.mark.slow
async def test_the_details_of_a_task_say_why_it_waits_and_of_one_that_runs_the_exact_command(client):
    runs = submit(client, name="holder", env={"SEED": "7"})
    waits = submit(client, name="waiter")
    async with looking((120, 60)) as eyes:
        await eyes.press("4")
        await eyes.see(runs, waits)
        await eyes.press("end", "enter")
        await eyes.see("Why it waits")
        await eyes.press("tab")
        await eyes.see(f"held by task {runs}")
        await eyes.press("escape", "home", "d")
        await eyes.see("SEED")
        await eyes.press("4")
        await eyes.see("Started")
        await eyes.press("6")
        script = client.get(f"/v1/tasks/{runs}/script")["script"]
        assert f"--name agentless-{runs}" in script
        await eyes.see("│ exec")
        shown = str(eyes.app.screen.query_one("#shown").content).replace("\n│ ", "")  # long lines are wrapped
        assert all(line in shown for line in script.splitlines())


@pytest.mark.slow
async def test_the_details_of_a_gpu_and_of_a_node(client):
    task = submit(client)
    async with looking((120, 70)) as eyes:
        await eyes.press("2", "enter")
        await eyes.see("UUID", "GPU-", task, "utilization")
        await eyes.press("escape", "3", "enter")
        await eyes.see("Checks", "reach", "ok", "toolkit")


# ------------------------------------------------------------------------- controller


@pytest.mark.slow
async def test_a_controller_that_dies_is_started_again_and_everything_is_there_again(client, monkeypatch):
    monkeypatch.setattr("agentless.tui.data.feed.AGAIN", 3.0)  # long enough to be seen on a busy machine
    task = submit(client)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        end_controller(signal.SIGKILL)
        await eyes.glimpse("Lost the connection to the controller")
        await eyes.see(
            lambda: not eyes.app.cluster.gone and eyes.app.cluster.tasks.get(task, {}).get("state") == "running"
        )


@pytest.mark.slow
async def test_a_controller_that_was_stopped_stays_stopped_until_it_is_wanted(client):
    task = submit(client)
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(task)
        client.post("/v1/controller/stop")
        await eyes.see("The controller was stopped", "press S to start it")
        await eyes.see(lambda: not client.is_running())
        wanted = time.time()
        await eyes.press("S")
        await eyes.see(lambda: not eyes.app.cluster.gone and task in eyes.text)
        assert datetime.fromisoformat(client.get("/v1/controller")["started_at"]).timestamp() >= wanted - 0.001


async def test_the_colours_that_were_chosen_are_those_of_the_next_time(client):
    async with looking() as eyes:
        await eyes.press("c")
        chosen = eyes.app.theme
        assert chosen == "textual-light"
    async with looking() as eyes:
        assert eyes.app.theme == chosen
        os.unlink(paths.config_dir() / "theme")


async def test_what_a_view_said_last_is_no_matter_for_a_dashboard_that_has_ended(client):
    async with looking() as eyes:
        await eyes.press("3")
    eyes.app.on_table_chosen()
