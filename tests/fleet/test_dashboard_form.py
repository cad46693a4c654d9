"""The form of the dashboard, over a simulated node with two GPUs: what is typed is what is submitted."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from agentless.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import IMAGE, PATIENCE
from tests.fleet.eyes import looking
from tests.fleet.house import inhabited
from tests.fleet.world import World
from tests.tmux import Tmux

in_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("house"), [NodePlan("n1", 2)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    for task in client.get("/v1/tasks"):
        client.post(f"/v1/tasks/{task['id']}/kill")
        client.wait(task["id"])
    for task in client.get("/v1/tasks", ended=True):
        client.delete(f"/v1/tasks/{task['id']}")


@pytest.fixture
def tmux(client, tmp_path) -> Iterator[Tmux]:
    with Tmux(tmp_path, {}) as tmux:
        tmux.agentless("dashboard")
        tmux.see("n1 online", "2 free")
        yield tmux


# ------------------------------------------------------- keys that come all at once


@in_tmux
def test_a_submit_takes_all_that_was_typed_before_it(client, tmux):
    tmux.press("3", "n")
    tmux.see("Command")
    tmux.press(f"1x\tsleep 600\t{IMAGE}")
    tmux.see("would start now")
    tmux.press("\t" + "x" * 30 + "\x13")
    tmux.see("x" * 30, "running")
    (task,) = client.get("/v1/tasks")
    assert task["name"] == "x" * 30


@in_tmux
def test_enter_goes_on_before_the_next_key(client, tmux):
    tmux.press("3", "n")
    tmux.see("Command")
    tmux.press("1x\rsleep 500")
    tmux.see("Where        1x\n", "Command      sleep 500")


# ------------------------------------------------------------------------- leaving


async def test_a_form_that_is_left_at_once_is_just_left(client):
    async with looking() as eyes:
        for _ in range(10):
            await eyes.press("n", "escape")
            assert len(eyes.app.screen_stack) == 1


async def test_an_empty_form_says_that_it_will_look(client):
    async with looking() as eyes:
        await eyes.press("3", "n")
        await eyes.see("What would become of it stands here while you write.")


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


@in_tmux
def test_who_leaves_while_it_is_submitted_is_told_that_its_end_is_not_known(tmux, hanging):
    tmux.press("3", "n")
    tmux.see("Command")
    hanging()
    tmux.press("1x\ttrue\x13")
    tmux.see("submitting")
    tmux.press("C-c")
    tmux.see("ready$", "a task was being submitted; whether it was, agentless ps says")
