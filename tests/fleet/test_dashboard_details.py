"""The screens with all there is to know of one thing: how they follow their size, the time, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from agentless.client.client import Client
from agentless.client.words import where
from agentless.model.moment import format_moment
from agentless.tui.app import Dashboard
from agentless.tui.data.feed import Feed
from agentless.tui.screens.details.curves import TaskCurves
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.widgets.curves import RANGES, Curves
from tests.fleet.client import PATIENCE
from tests.fleet.eyes import Eyes

RECORDED = json.loads((Path(__file__).parents[1] / "pure" / "data" / "dashboard" / "board.json").read_text())["line"]
FIELDS = ("utilization_pct", "memory_used_mib", "temperature_c", "power_w")
NODE_FIELDS = (
    "cores_busy", "memory_used_mib", "disk_used_mib", "network_in_bytes_per_second", "network_out_bytes_per_second",
)  # fmt: skip
NOW = RECORDED["now"]


class Remembering(Client):
    """Instead of a controller: each GPU was used by its number in percent, ten times so much in the second half."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), None)
        self.asked: list[dict[str, object]] = []

    def get(self, path: str, **query: object) -> object:
        if path == "/v1/doctor":
            return [{"check": "reach", "ok": True, "detail": ""}]
        if path != "/v1/history" or not {"gpu", "node"} & query.keys():
            return {"gpus": []}
        self.asked.append(query)
        points = int(str(query["points"]))
        rows = [gpu for gpu in RECORDED["gpus"] if named(gpu, str(query.get("gpu", "")))]
        gpus = [
            {
                **{key: gpu[key] for key in ("node", "index", "uuid")},
                **{name: level(gpu["index"], points) for name in FIELDS},
            }
            for gpu in rows
        ]
        host = {**{name: [None, 1.0] * (points // 2) for name in NODE_FIELDS}, "temperature_c": [None] * points}
        step = float(str(query["since"])) / points
        return {"at": NOW, "step": step, "gpus": gpus, "nodes": [{**host, "node": "node1"}] if "node" in query else []}


def named(gpu: dict[str, object], target: str) -> bool:
    node, _, numbers = target.partition("::")
    return gpu["node"] == node and (not numbers or str(gpu["index"]) in numbers.split(","))


def level(number: int, points: int) -> list[float]:
    return [float(number) if at < points // 2 else 10.0 * number for at in range(points)]


def gpu(eyes: Eyes, number: int) -> dict[str, object]:
    return next(gpu for gpu in eyes.app.cluster.gpus.values() if named(gpu, f"node1::{number}"))


@contextlib.asynccontextmanager
async def dashboard(client: Client, monkeypatch: pytest.MonkeyPatch, width: int) -> AsyncIterator[Eyes]:
    monkeypatch.setattr(Feed, "start", lambda _: None)
    app = Dashboard(client)
    async with app.run_test(size=(width, 50)) as pilot:
        app.cluster.apply(json.loads(json.dumps(RECORDED)))
        yield Eyes(app, pilot)


def plots_of(eyes: Eyes) -> list[str]:
    """The lines of plots: those with an axis of values."""
    return [line for line in eyes.text.splitlines() if "┤" in line or "│" in line]


async def test_curves_take_the_room_that_there_is(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 120) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, gpu(eyes, 3)))
        await eyes.see("Load  ━u utilization 30%", "━m memory 0%", "Temperature  30C", "Power  30 W")
        curves = eyes.app.screen.query_one(Curves)

        def rows() -> int:
            """All but the line of ranges, and for each row of plots a legend and an axis of times."""
            return curves.size.height - 1 - 2 * len({area.y for area in curves._areas})

        for height in (50, 60):
            await eyes.pilot.resize_terminal(120, height)
            await eyes.see(lambda height=height: curves.region.bottom == height - 1)
            await eyes.see(lambda: len(plots_of(eyes)) == rows())
        await eyes.pilot.resize_terminal(50, 60)
        await eyes.see(lambda: all(len(line) <= 50 for line in eyes.text.splitlines()), "Power  30 W")


async def test_the_arrow_keys_tell_the_values_of_a_moment(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 120) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, gpu(eyes, 3)))
        await eyes.see("━u utilization 30%")
        await eyes.press("left", "left")
        await eyes.see("━u utilization 30%", ", 8s ago", lambda: plots_of(eyes)[0].count("│") == 1)
        await eyes.press("right", "right")
        await eyes.see("← → values", lambda: plots_of(eyes)[0].count("│") == 0)


async def test_a_click_sets_the_cursor(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 120) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, gpu(eyes, 3)))
        await eyes.see("━u utilization 30%", "550.54.15")
        curves = eyes.app.screen.query_one(Curves)
        await eyes.pilot.click(curves, offset=(30, 5))
        await eyes.see(
            "━u utilization 3% ",
            "Temperature  3C",
            lambda: eyes.text.splitlines()[curves.region.y + 5][curves.region.x + 30] == "│",
        )


async def test_the_keys_for_the_range_show_up_to_a_month(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 120) as eyes:
        client = eyes.app.client
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, gpu(eyes, 3)))
        await eyes.see("[10 min] 1 h")
        for name, span in [*RANGES.items()][1:]:
            await eyes.press(">")
            await eyes.see(f"[{name}]", lambda span=span: client.asked[-1]["since"] == span)
        await eyes.see("11-12", "11-18")
        await eyes.press(">", "<")
        await eyes.see(" 1 d [7 d] 30 d")


async def test_a_node_has_a_line_for_each_of_its_gpus_with_its_number_and_value(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 200) as eyes:
        await eyes.app.push_screen(NodeDetails(eyes.app.cluster, "node1"))
        await eyes.see("GPU utilization  each 0 to 100%", "Cores busy  1", "Disk  ", "Network  ━i in 1B/s")
        curves = eyes.app.screen.query_one(Curves)
        right = curves._areas[0].x + curves._areas[0].columns
        lines = [line[curves.region.x :] for line in plots_of(eyes) if "%" in line.partition("┤")[2]]
        seen = [(line.split("┤")[0].strip(), line[right:].split()[0]) for line in lines]
        assert seen == [(str(at), f"{10 * at}%") for at in range(8)]


async def test_how_busy_a_node_is_is_in_its_details(monkeypatch):
    """What was never read has no curve."""
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        await eyes.app.push_screen(NodeDetails(eyes.app.cluster, "node1"))
        await eyes.see("12.3 of 64 busy, 16 set aside", "96.0 of 503.8 GiB used, 256 GiB set aside", "61C")
        await eyes.see("NUMA 0         32 cores (0-31), 251.9 GiB, GPUs 0,1", "NUMA 1         32 cores")
        await eyes.press(*["pagedown"] * 5)
        await eyes.see("Cores busy  1", "Network", "Checks")
        assert "Temperature  " not in eyes.text.replace("GPU temperature", "")


async def test_the_curves_go_on_while_they_are_looked_at(monkeypatch):
    monkeypatch.setattr("agentless.tui.widgets.curves.SOONEST", 0.05)
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, gpu(eyes, 3)))
        await eyes.see(lambda: len(eyes.app.client.asked) > 3)


async def test_a_task_has_the_curves_of_its_gpus_from_its_start_to_its_end(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 120) as eyes:
        task = next(task for task in eyes.app.cluster.tasks.values() if task["gpus"])
        begin = format_moment(NOW - 7200, "seconds").replace(" UTC", "Z")
        task |= {
            "state": "completed",
            "started_at": begin,
            "ended_at": format_moment(NOW - 3600, "seconds").replace(" UTC", "Z"),
        }
        await eyes.app.push_screen(Alone(TaskCurves(eyes.app.cluster, task)))
        await eyes.see("[all] 10 min", "GPU utilization", "GPU power")
        asked = eyes.app.client.asked[-1]
        assert (asked["gpu"], round(asked["since"] / 10), asked["points"]) == (where(task), 720, 960)
        assert "now" not in eyes.text
        await eyes.press(">")
        await eyes.see("all [10 min]", lambda: round(eyes.app.client.asked[-1]["since"] / 10) == 420)


async def test_a_task_that_has_not_started_says_so(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        task = {**next(iter(eyes.app.cluster.tasks.values())), "id": "x", "started_at": None, "ended_at": None}
        await eyes.app.push_screen(Alone(TaskCurves(eyes.app.cluster, task)))
        await eyes.see("The task has not started")


async def test_processes_on_a_gpu_are_a_table_with_their_memory(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        row = gpu(eyes, 3)
        process = {"gpu_uuid": row["uuid"], "name": "python", "user": "alice", "container": None}
        row["processes"] = [
            {**process, "pid": 7, "memory_mib": 310, "command": None, "user": None},
            {**process, "pid": 24838, "memory_mib": 61200, "command": "python train.py " + "--long " * 20},
        ]
        await eyes.app.push_screen(GpuDetails(eyes.app.cluster, row))
        await eyes.see("GPU MEMORY  COMMAND", "24838 alice   59.8 GiB  python train.py", "7 -        310 MiB  python")


class Alone(Screen[None]):
    """A widget on a screen of its own."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget

    def compose(self) -> ComposeResult:
        yield self._widget


async def test_a_time_limit_is_said_as_people_say_it(monkeypatch):
    async with dashboard(Remembering(), monkeypatch, 80) as eyes:
        task = {**next(iter(eyes.app.cluster.tasks.values())), "time_limit": 90000.0}
        eyes.app.cluster.tasks[task["id"]] = task
        screen = TaskDetails(eyes.app.cluster, task)
        monkeypatch.setattr(screen, "ask", lambda: None)
        await eyes.app.push_screen(screen)
        await eyes.see(lambda: "1d 1h" in eyes.line("time limit"))


@pytest.mark.parametrize("screen", ["log", pytest.param("details", marks=pytest.mark.slow)])
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
