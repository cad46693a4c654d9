"""`agentless dashboard --web`: how many apps there are, and that none outlives its visitor or its server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.client import gone
from tests.fleet.web import LINK, ended, shown


@pytest.mark.slow
async def test_who_comes_when_all_places_are_taken_is_told_so(visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        async with visitor.connect() as three:
            await shown(three, "2 dashboards are open, the maximum")
            await ended(three)


@pytest.mark.slow
async def test_the_place_of_one_who_has_left_is_free_again(visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        await two.close()
        async with visitor.connect() as three:
            await shown(three, "counted")


@pytest.mark.slow
async def test_each_visitor_has_an_app_of_their_own(served, visitor):
    async with visitor.connect() as one, visitor.connect() as two:
        await shown(one, "counted")
        await shown(two, "counted")
        assert len(served.apps()) == 2


async def test_the_app_ends_with_the_connection(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
    assert await gone(*served.apps())


@pytest.mark.parametrize("heartbeat", [2])
async def test_the_app_ends_when_the_browser_falls_silent(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")  # and from here on nobody listens
        (app,) = served.apps()
        assert await gone(app)


async def test_an_app_that_hangs_is_killed(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
    assert await gone(*served.apps())


async def test_the_connection_ends_with_the_app(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "x"])
        await ended(websocket)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP))],
    ids=lambda number: number.name,
)
async def test_a_signal_ends_the_server_and_all_apps(served, visitor, number):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.send_signal(number)
        said = (await served.process.stdout.read()).decode()
        assert (await served.process.wait(), "tasks keep running" in said) == (0, True)
        assert served.living() == []


async def test_an_app_is_asked_to_end_before_it_is_killed(served, visitor, tmp_path):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.terminate()
        await served.process.wait()
        assert [path.read_text() for path in tmp_path.iterdir()] == ["ended by itself"]


async def test_a_server_that_ends_kills_an_app_that_hangs(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
        served.process.terminate()
        await served.process.wait()
        assert served.living() == []


async def test_an_app_whose_server_was_killed_ends_by_itself(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        served.process.kill()
        assert await gone(*served.apps())


async def test_even_an_app_that_hangs_ends_when_its_server_was_killed(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "h"])
        await shown(websocket, "hangs")
        served.process.kill()
        assert await gone(*served.apps())


def agentless(inventory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-m", "agentless", "-i", str(inventory), "dashboard", *words),
        env={**os.environ, "XDG_STATE_HOME": f"{inventory}.state"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def inventory(tmp_path) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text("version: 1\nnodes: {node1: {host: 127.0.0.1}}\n")
    return path


def test_ctrl_c_ends_the_command_with_a_sentence(inventory):
    command = agentless(inventory, "--web")
    assert LINK.search(command.stdout.readline())
    while "Ctrl-C" not in command.stdout.readline():
        pass
    command.send_signal(signal.SIGINT)
    assert "Web dashboard stopped" in command.communicate()[0]
    assert command.returncode == 0


def test_a_port_that_is_in_use_is_said(inventory):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = agentless(inventory, "--web", "--port", str(port))
        said = command.communicate()[1]
    assert said == f"agentless: port {port} is in use; choose another one or omit --port\n"
    assert command.returncode == 1


def test_that_there_is_no_inventory_is_said_at_once(tmp_path):
    command = agentless(tmp_path / "nowhere", "--web")
    said = command.communicate()[1]
    assert (command.returncode, "does not exist" in said) == (2, True)


def test_a_port_is_for_a_browser(inventory):
    command = agentless(inventory, "--port", "8000")
    said = command.communicate()[1]
    assert (command.returncode, said) == (2, "agentless: --port is the port for a browser; add --web\n")
