"""The screens with all there is to know of one thing: how they follow their size, the time, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentless.client.client import Client
from agentless.tui.app import Dashboard
from agentless.tui.data.feed import Feed
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.logs.screen import LogScreen
from tests.fleet.client import PATIENCE
from tests.fleet.eyes import Eyes

RECORDED = json.loads((Path(__file__).parents[1] / "pure" / "data" / "dashboard" / "board.json").read_text())["line"]
FIELDS = ("utilization_pct", "memory_used_mib", "temperature_c", "power_w")

NODE_FIELDS = ("cores_busy", "memory_used_mib", "network_in_bytes_per_second", "network_out_bytes_per_second")


class Remembering(Client):
    """Instead of a controller: each time it is asked, the GPU was used by one percent more, up to three."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), None)
        self.asked = 0

    def get(self, path: str, **query: object) -> object:
        if "node" in query:
            half = [None, 1.0] * (int(str(query.get("points", 2))) // 2)
            hour = {**dict.fromkeys(NODE_FIELDS, half), "temperature_c": [None] * len(half)}
            check = {"check": "reach", "ok": True, "detail": ""}
            return {"nodes": [hour]} if path == "/v1/history" else [check]
        if path != "/v1/history" or "gpu" not in query:
            return {"gpus": []}
        self.asked += 1
        return {"gpus": [dict.fromkeys(FIELDS, [float(min(self.asked, 3))] * int(str(query["points"])))]}


@contextlib.asynccontextmanager
async def dashboard(client: Client, monkeypatch: pytest.MonkeyPatch, width: int) -> AsyncIterator[Eyes]:
    monkeypatch.setattr(Feed, "start", lambda _: None)
    app = Dashboard(client)
    async with app.run_test(size=(width, 50)) as pilot:
        app.cluster.apply(json.loads(json.dumps(RECORDED)))
        yield Eyes(app, pilot)


async def test_curves_take_the_room_that_there_is(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, next(iter(eyes.app.cluster.gpus.values()))))
        await eyes.see("Power, last hour")
        await eyes.pilot.resize_terminal(50, 50)
        await eyes.see(lambda: {len(curve) for curve in re.findall("[\u2800-\u28ff]+", eyes.text)} == {46})
        assert len(re.findall("[\u2800-\u28ff]+", eyes.text)) == 16


async def test_how_busy_a_node_is_and_was_is_in_its_details(monkeypatch):
    """What was never read has no curve."""
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        await eyes.app.push_screen(NodeDetails(eyes.app.cluster, "node1"))
        await eyes.see("12.3 of 64 busy, 16 set aside", "96.0 of 503.8 GiB used, 256 GiB set aside", "61C")
        await eyes.see("0: 32 cores (0-31), 251.9 GiB, GPUs 0,1", "1: 32 cores", "Cores, last hour, 0 to 64; now 1")
        assert "Temperature, last hour" not in eyes.text
        await eyes.pilot.resize_terminal(50, 50)
        await eyes.see(lambda: {len(curve) for curve in re.findall("[\u2800-\u28ff]+", eyes.text)} == {46})


async def test_the_last_hour_goes_on_while_it_is_looked_at(monkeypatch):
    monkeypatch.setattr(GpuDetails, "AGAIN", 0.05)
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, next(iter(eyes.app.cluster.gpus.values()))))
        await eyes.see("now 3%")


async def test_a_time_limit_is_said_as_people_say_it(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        task = {**next(iter(eyes.app.cluster.tasks.values())), "time_limit": 90000.0}
        eyes.app.cluster.tasks[task["id"]] = task
        screen = TaskDetails(eyes.app.cluster, task)
        monkeypatch.setattr(screen, "ask", lambda: None)
        await eyes.app.push_screen(screen)
        await eyes.see(lambda: "1d 1h" in eyes.line("time limit"))


@pytest.mark.parametrize("screen", ["details", "log"])
async def test_a_controller_that_hangs_holds_nobody_who_leaves(tmp_path, monkeypatch, screen):
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "controller.sock"))
        hanging.listen()
        async with dashboard(Client(tmp_path, None), monkeypatch, 80) as eyes:
            app = eyes.app
            task = next(iter(app.cluster.tasks.values()))
            await app.push_screen(
                TaskDetails(app.cluster, task) if screen == "details" else LogScreen(app.cluster, task, app.client)
            )
            connection, _ = await asyncio.wait_for(asyncio.to_thread(hanging.accept), PATIENCE)
            with connection:
                connection.settimeout(PATIENCE)
                await eyes.press("escape")
                await asyncio.to_thread(_rest, connection)


def _rest(connection: socket.socket) -> None:
    """Read to the end, which comes when the other side lets go."""
    while connection.recv(4096):
        pass
