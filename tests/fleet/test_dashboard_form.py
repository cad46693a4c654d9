"""The form of the dashboard, over a simulated node with two GPUs: what is typed is what is submitted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from agentless.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import IMAGE
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
    tmux.see("Where        1x ", "Command      sleep 500")


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
