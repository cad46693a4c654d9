"""The form of the dashboard, over a simulated node with two GPUs: what is typed is what is submitted."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from textual import events

from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import IMAGE, PATIENCE
from tests.fleet.eyes import looking
from tests.fleet.inhabited import forget_tasks, inhabited
from tests.fleet.world import World
from tests.tmux import Tmux

in_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 2)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    forget_tasks(client)


@pytest.fixture
def tmux(client, tmp_path) -> Iterator[Tmux]:
    with Tmux(tmp_path, {}) as tmux:
        tmux.agentless("dashboard")
        tmux.see("n1 online", "2 free")
        yield tmux


# ------------------------------------------------------- keys that come all at once


@pytest.mark.slow
async def test_a_refusal_stays_although_the_change_that_it_is_about_is_reported_late(client, monkeypatch):
    monkeypatch.setattr("agentless.tui.screens.submit.LOOK_AFTER", 0.001)
    async with looking() as eyes:
        await eyes.press("3", "n")
        eyes.app.screen.query_one("#target").value = "1x"
        eyes.app.screen.action_submit()
        await eyes.pilot.pause(0.1)
        await eyes.app.workers.wait_for_complete()
        await eyes.see("Enter a command")
        eyes.app.screen.query_one("#target").value = "2x"
        await eyes.see("2x would start now")


async def test_a_refusal_stays_although_a_preview_was_due(client):
    async with looking() as eyes:
        await eyes.press("3", "n")
        form = eyes.app.screen
        form.query_one("#target").value = "1x"
        await eyes.see("1x would start now")
        form.action_submit()
        form._look()
        await eyes.app.workers.wait_for_complete()
        await eyes.see("Enter a command")


@pytest.mark.slow
@in_tmux
def test_a_submit_takes_all_that_was_typed_before_it(client, tmux):
    tmux.press("3", "n")
    tmux.see("Command")
    tmux.press(f"1x\tsleep 600\t{IMAGE}")
    tmux.see("would start now")
    tmux.press("\t\t" + "x" * 30 + "\x13")
    tmux.see("x" * 30, "running")
    (task,) = client.get("/v1/tasks")
    assert task["name"] == "x" * 30


@in_tmux
def test_enter_goes_on_before_the_next_key(client, tmux):
    tmux.press("3", "n")
    tmux.see("Command")
    tmux.press("1x\rsleep 500")
    tmux.see("Where             1x ", "Command           sleep 500")


@pytest.mark.slow
@in_tmux
def test_enter_leaves_the_filter_before_the_next_key(client, tmux):
    for name in ("multi", "other"):
        client.post(
            "/v1/tasks", {"targets": ["1x"], "spec": {"command": ["sleep", "600"], "image": IMAGE, "name": name}}
        )
    tmux.press("4")
    tmux.see("multi", "other")
    tmux.press("/")
    tmux.see("Filter, for example")
    tmux.press("multi\rd")
    tmux.see("multi", "started")
    tmux.press("Escape")
    tmux.see("multi", "OWNER")
    assert "other" not in tmux.text


# ------------------------------------------------------------------------- leaving


@pytest.mark.slow
async def test_a_form_that_is_left_at_once_is_just_left(client):
    async with looking() as eyes:
        for _ in range(3):
            await eyes.press("n", "escape")
            assert len(eyes.app.screen_stack) == 1


async def test_an_empty_form_says_that_it_will_look(client):
    async with looking() as eyes:
        await eyes.press("3", "n")
        await eyes.see("A preview appears here as you type.")


@pytest.mark.slow
async def test_what_was_typed_is_lost_only_after_a_yes(client):
    async with looking() as eyes:
        await eyes.press("3", "n", "1x", "escape")
        await eyes.see("Discard this form?")
        await eyes.press("n")
        await eyes.see("1x", "Submit (Ctrl+S)")
        await eyes.press("escape", "y")
        await eyes.see(lambda: len(eyes.app.screen_stack) == 1)


@pytest.mark.slow
async def test_escape_closes_the_images_before_the_form(client):
    (start,) = client.post("/v1/tasks", {"targets": ["n1::0"], "spec": {"command": ["sleep", "600"], "image": IMAGE}})
    async with looking() as eyes:
        await eyes.press("3")
        await eyes.see(lambda: start["task"]["id"] in eyes.app.cluster.tasks)
        await eyes.press("n", "down", "down", "down")
        await eyes.see(IMAGE)
        await eyes.press("escape")
        await eyes.see("Submit (Ctrl+S)")
        assert IMAGE not in eyes.text
        assert eyes.app.screen.focused.id == "image"


# ------------------------------------------------------- a controller that takes its time


async def test_what_was_asked_for_before_has_no_say_any_more(client, monkeypatch):
    asked, slow, post = threading.Event(), threading.Event(), Client.post

    def answered(self, path, body=None, **query):
        found = post(self, path, body, **query)
        if body["targets"] == ["2x"]:
            asked.set()
            slow.wait(PATIENCE)
        return found

    monkeypatch.setattr(Client, "post", answered)
    async with looking() as eyes:
        await eyes.press("3", "n", "2x", "tab", "true", "tab", IMAGE)
        await eyes.see(asked.is_set)
        eyes.app.screen.query_one("#target").value = "n9::0"
        await eyes.see("no node 'n9'")
        slow.set()
        await eyes.app.workers.wait_for_complete()
        await eyes.pilot.pause()
        assert "no node 'n9'" in eyes.text


@pytest.fixture
def hanging(client) -> Iterator[Callable[[], None]]:
    pid = client.get("/v1/controller")["pid"]
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_a_controller_that_hangs_keeps_nobody(client, monkeypatch, hanging):
    asked, ended, post = threading.Event(), threading.Event(), Client.post

    def answered(*words):
        asked.set()
        try:
            return post(*words)
        finally:
            ended.set()

    async with looking() as eyes:
        await eyes.press("3", "n", "1x")
        hanging()
        monkeypatch.setattr(Client, "post", answered)
        await eyes.press("tab", "true")
        await eyes.see(asked.is_set)
    assert ended.wait(PATIENCE)


@pytest.fixture
def slow(client, monkeypatch) -> threading.Event:
    """A submit is answered only after this."""
    slow, post = threading.Event(), Client.post

    def answered(self, path, body=None, **query):
        if path == "/v1/tasks":
            slow.wait(PATIENCE)
        return post(self, path, body, **query)

    monkeypatch.setattr(Client, "post", answered)
    return slow


@pytest.mark.slow
async def test_the_form_stays_until_it_is_known_what_became_of_the_task(slow):
    async with looking() as eyes:
        await eyes.press("3", "n", "1x", "tab", "sleep 600", "tab", IMAGE, "ctrl+s")
        await eyes.see("Submitting")
        await eyes.press("escape")
        await eyes.see(lambda: "Submitting; press Ctrl+C" in eyes.messages, "Submitting")
        slow.set()
        await eyes.see(lambda: "is running on n1" in eyes.messages and len(eyes.app.screen_stack) == 1)


@pytest.mark.slow
async def test_an_answer_leaves_what_is_on_top_of_the_form(slow):
    async with looking() as eyes:
        await eyes.press("3", "n", "1x", "tab", "sleep 600", "tab", IMAGE, "ctrl+s")
        await eyes.see("Submitting")
        eyes.app.action_keys()
        await eyes.see("submit a copy of the task")
        slow.set()
        await eyes.see(lambda: "is running on n1" in eyes.messages, "submit a copy of the task")
        await eyes.press("escape")
        await eyes.see(lambda: len(eyes.app.screen_stack) == 1)


@pytest.mark.slow
@in_tmux
def test_who_leaves_while_it_is_submitted_is_told_that_its_end_is_not_known(tmux, hanging):
    tmux.press("3", "n")
    tmux.see("Command")
    hanging()
    tmux.press("1x\ttrue\x13")
    tmux.see("Submitting")
    tmux.press("C-c")
    tmux.see("ready$", "run agentless ps to see whether the task was created")


# --------------------------------------------------------------------------- the command


def argv(client: Client) -> list[str]:
    (task,) = client.get("/v1/tasks", ended=True)
    return task["command"]


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ("sleep \\\n  600", ["sleep", "600"]),
        ("sleep\n600\n", ["sleep", "600"]),
        ("sh -c 'sleep 600\necho \\\nend' it\\\ns", ["sh", "-c", "sleep 600\necho \\\nend", "its"]),
        ('sh -c "sleep 600 # it\'s \\\\n\\\n"', ["sh", "-c", "sleep 600 # it's \\n"]),
    ],
)
@pytest.mark.slow
async def test_a_command_of_several_lines_is_read_as_a_shell_reads_it(client, pasted, words):
    async with looking((80, 24)) as eyes:
        await eyes.press("3", "n", "1x", "tab")
        eyes.app.post_message(events.Paste(pasted))
        await eyes.press("tab", IMAGE)
        await eyes.see("would start now")
        await eyes.press("ctrl+s")
        await eyes.see("running")
    assert argv(client) == words


SPAN = r"\\span:{1..2}"


@pytest.mark.slow
@pytest.mark.parametrize("more", [["sleep 600\n\necho 'it''s'\n"], ["sleep 600", SPAN]])
async def test_a_task_like_another_one_has_exactly_its_command(client, more):
    words = ["sh", "-c", *more]
    spec = {"command": words, "image": IMAGE}
    (start,) = client.post("/v1/tasks", {"targets": ["n1::0"], "spec": spec})
    async with looking() as eyes:
        await eyes.press("4")
        await eyes.see(start["task"]["id"])
        await eyes.press("N")
        await eyes.see("Command", "held by task")
        await eyes.press("ctrl+s")
        await eyes.see("pending")
    (waits,) = client.get("/v1/queue")
    assert client.get(f"/v1/tasks/{waits['id']}")["command"] == words


@pytest.mark.slow
async def test_a_task_like_one_without_a_container_has_none(client):
    for environment in ({"image": IMAGE}, {"container": "NULL"}):
        client.post("/v1/tasks", {"targets": ["n1::0"], "spec": {"command": ["sleep", "600"], **environment}})
    (waits,) = client.get("/v1/queue")
    async with looking() as eyes:
        await eyes.press("5")
        await eyes.see(waits["id"])
        await eyes.press("N")
        await eyes.see("Command", "held by task")
        await eyes.press("ctrl+s")
        await eyes.see(lambda: len(client.get("/v1/queue")) == 2)
    boxes = [client.get(f"/v1/tasks/{task['id']}/spec")["container"] for task in client.get("/v1/queue")]
    assert boxes == ["NULL", "NULL"]


async def test_the_form_fits_into_a_small_terminal(client):
    async with looking((80, 24)) as eyes:
        await eyes.press("3", "n", "1x", "tab")
        eyes.app.post_message(events.Paste("one\ntwo\nthree\nfour"))
        await eyes.press("tab", IMAGE)
        await eyes.see("four", "GPU type", "would start now", "^s Submit")
        await eyes.press("shift+tab", "shift+tab", "shift+tab")
        assert eyes.app.screen.focused.id == "submit"
        await eyes.see("Variables", "If it fails  retry on", "Submit (Ctrl+S)", "would start now", "^s Submit")


@pytest.mark.slow
async def test_panels_lists_secrets_and_files_are_what_is_submitted(client, tmp_path):
    (tmp_path / "data.txt").write_text("x")
    async with looking() as eyes:
        form = await opened(eyes)
        await eyes.press("1x", "tab", "sleep 600", "tab", IMAGE)
        for name, text in {"env": "A=1", "upload": str(tmp_path / "data.txt"), "node": "n"}.items():
            fill(field(eyes, name), text)
        form.set_focus(field(eyes, "node"))
        await eyes.press("end", "down")
        await eyes.see("n1  online, 2 of 2 GPUs free")
        await eyes.press("enter", *["tab"] * 5, "40G", "tab", "down")
        await eyes.see("2 of 2 GPUs free")
        await eyes.press("escape")
        form.set_focus(form._folds["Container"])
        await eyes.press("enter", "tab", "down", "down", "enter", "tab", "TOKEN=s3cret", "tab", "tab", "1000:1000")
        await eyes.see("TOKEN=••••••", "always", "1000:1000")
        assert "s3cret" not in eyes.text
        form.set_focus(form._folds["Container"])
        await eyes.press("enter")
        await eyes.see("Container: pull, secrets, user")
        form.set_focus(form._folds["If it fails"])
        await eyes.press("enter", "tab", "nothing")
        await eyes.see("retry on 'nothing': use failed, oom")
        form.set_focus(field(eyes, "target"))
        await eyes.press("ctrl+s")
        await eyes.see(lambda: form.focused and form.focused.id == "retry_on")
        await eyes.press("ctrl+u", "ctrl+s")
        await eyes.see(lambda: len(eyes.app.screen_stack) == 1)
    (task,) = client.get("/v1/tasks", ended=True)
    spec = client.get(f"/v1/tasks/{task['id']}/spec")
    assert (spec["user"], spec["pull"], spec["secret_env"]) == ("1000:1000", "always", ["TOKEN"])
    assert (spec["needs"]["nodes"], spec["needs"]["gpu_memory"], spec["env"]) == (["n1"], 40 * 10**9, {"A": "1"})
    assert [bool(each["snapshot"]) for each in spec["uploads"]] == [True]


async def opened(eyes):
    await eyes.press("3", "n")
    await eyes.see("A preview appears here as you type.")
    return eyes.app.screen


def fill(widget, text):
    setattr(widget, "text" if widget.id == "env" else "value", text)


async def test_down_goes_through_the_lines_and_up_goes_back(client):
    async with looking() as eyes:
        await eyes.press("3", "n", "down", "down")
        assert eyes.app.screen.focused.id == "image"
        await eyes.press("tab", "tab", "down", "up", "up", "up")
        assert eyes.app.screen.focused.id == "image"


async def test_what_is_wrong_is_said_of_the_fields_and_not_of_options(client):
    async with looking() as eyes:
        await eyes.press("3", "n", "tab", "true")
        before = {name: field(eyes, name).value for name in ("target", "memory", "time_limit", "retries")}
        for fields, words in (
            ({"target": "1x", "memory": "lots"}, " memory 'lots' is not a size"),
            ({"target": "1x", "time_limit": "soon"}, "time limit 'soon'"),
            ({"target": "1x", "retries": "some"}, "retries 'some' is not a whole number"),
            ({}, "No resources requested"),
        ):
            for name, value in (before | fields).items():
                field(eyes, name).value = value
            await eyes.press("ctrl+s")
            await eyes.see(words)
            assert "--" not in eyes.text.replace("--lr", "")


def field(eyes, name):
    return eyes.app.screen.query_one(f"#{name}")


async def test_ctrl_c_in_the_form_asks_as_esc_does(client):
    async with looking() as eyes:
        await eyes.press("n")
        await eyes.see("Command")
        await eyes.press("x", "ctrl+c")
        await eyes.see("Your input is lost")
