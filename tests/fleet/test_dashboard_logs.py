"""The log of a task on the dashboard, over a simulated node: what is saved of it, and where."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from agentless.client import Client
from agentless.demo.fleet import NodePlan
from tests.fleet.client import IMAGE
from tests.fleet.eyes import Eyes, looking
from tests.fleet.house import inhabited
from tests.fleet.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("house"), [NodePlan("n1", 1)]) as world:
        yield world


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    client = Client.found(None)
    yield client
    for task in client.get("/v1/tasks", ended=True):
        client.delete(f"/v1/tasks/{task['id']}")


def ended(client: Client, script: str) -> str:
    """A task that has said all that it says."""
    asked = {"targets": ["n1::0"], "spec": {"command": ["sh", "-c", script], "image": IMAGE, "needs": {"nodes": []}}}
    (start,) = client.post("/v1/tasks", asked)
    client.wait(start["task"]["id"])
    return start["task"]["id"]


@contextlib.asynccontextmanager
async def reading(client: Client, script: str) -> AsyncIterator[Eyes]:
    """Somebody who has read the log of a task to its end."""
    task = ended(client, script)
    async with looking((100, 20)) as eyes:
        await eyes.press("4")
        await eyes.see(task)
        await eyes.press("l")
        await eyes.see("the end")
        yield eyes


def told(eyes: Eyes) -> str:
    """What they were told, however it is broken into lines on the screen."""
    return "\n".join(note.message for note in eyes.app._notifications)


async def test_a_file_that_is_there_is_never_written_over(client, tmp_path):
    there = tmp_path / "results"
    there.write_text("of a month")
    async with reading(client, "echo hello") as eyes:
        await eyes.press("S", "ctrl+u", str(there), "enter")
        await eyes.see(lambda: "is there already; choose another name" in told(eyes))
        assert there.read_text() == "of a month"


async def test_after_a_name_that_is_taken_another_one_can_be_typed(client, tmp_path):
    (tmp_path / "results").touch()
    async with reading(client, "echo hello") as eyes:
        await eyes.press("S", "ctrl+u", str(tmp_path / "results"), "enter")
        await eyes.see(lambda: "is there already" in told(eyes))
        await eyes.press("2", "enter")
        await eyes.see(lambda: "saved as" in told(eyes))
        assert (tmp_path / "results2").read_bytes() == b"hello\n"


@pytest.mark.parametrize("name", ["~nobody123/x", "a\0b", "/nowhere/x"])
async def test_a_name_that_no_file_can_have_is_told_in_a_sentence(client, name):
    async with reading(client, "echo hello") as eyes:
        await eyes.press("S")
        line = eyes.app.screen.query_one("Input")
        line.value = name
        await eyes.press("enter")
        await eyes.see(lambda: "cannot be" in told(eyes))
        assert line.has_class("-open")
