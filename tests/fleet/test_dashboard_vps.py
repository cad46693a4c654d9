"""VPS in the dashboard, over a simulated node with two GPUs: from the form to the end, by keys alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.eyes import looking
from tests.fleet.inhabited import inhabited
from tests.fleet.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("fleet"), [NodePlan("n1", 2)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    for vps in client.get("/v1/vps"):
        client.delete(f"/v1/vps/{vps['name']}", force=True)


async def test_a_vps_is_created_by_the_form_stopped_started_and_removed(client, world):
    async with looking() as eyes:
        await eyes.press("7", "n")
        await eyes.see("A preview appears here as you type.", "Create (Ctrl+S)")
        await eyes.press("dev", "tab", "1x")
        await eyes.see("1x would start now")
        await eyes.press("ctrl+s")
        await eyes.see(lambda: "dev is running on n1" in eyes.messages, lambda: "running" in eyes.line("dev"))
        await eyes.press("T")
        await eyes.see("Stop VPS dev?", "SIGKILL")
        await eyes.press("y")
        await eyes.see(lambda: "dev is stopped" in eyes.messages, lambda: "stopped" in eyes.line("dev"))
        await eyes.press("R")
        await eyes.see(lambda: "running" in eyes.line("dev"))
        assert [each.live for each in world.containers()] == [True]
        await eyes.press("R")
        await eyes.see("Restart VPS dev?", "Its files stay")
        await eyes.press("n", "T", "y")
        await eyes.see(lambda: "stopped" in eyes.line("dev"))
        await eyes.press("x")
        await eyes.see("Remove VPS dev?", "with all files in it")
        await eyes.press("y")
        await eyes.see(lambda: "dev is removed" in eyes.messages, "No VPS")
    assert client.get("/v1/vps") == []


@pytest.mark.slow
async def test_a_name_that_is_taken_is_said_in_the_form_and_nothing_is_lost(client):
    client.post("/v1/vps", {"targets": ["n1"], "spec": {"command": [], "name": "dev"}})
    async with looking() as eyes:
        await eyes.press("7", "n", "dev", "tab", "1x", "ctrl+s")
        await eyes.see("VPS dev already exists")
        await eyes.see("1x", "Create (Ctrl+S)")
