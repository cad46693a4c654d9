"""A dashboard over a scene, and the way through all of its views, and through all that is opened on top of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from textual.screen import Screen
from textual.widgets import Input, TextArea
from textual.worker import WorkerFailed

import agentless.client.words
from agentless.tui.app import SEEN, VIEWS, Dashboard
from agentless.tui.data.feed import Feed
from agentless.tui.data.incoming import Incoming
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.keys import Keys, keys_of
from agentless.tui.screens.logs.pane import LogPane
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.screens.reports.envs import EnvReport
from agentless.tui.screens.reports.timeline import Timeline
from agentless.tui.screens.reports.usage import UsageReport
from agentless.tui.screens.submit import SubmitForm
from agentless.tui.screens.workflows.graph import WorkflowScreen
from tests.fleet.eyes import Eyes
from tests.pure.scene import BOARD, NOW, RUNS, WAITS, Row, SceneClient, history

OPENED: dict[str, Callable[[Dashboard], Screen]] = {
    "gpu": lambda app: GpuDetails(app.cluster, next(g for g in app.cluster.gpus.values() if g["tasks"])),
    "node": lambda app: NodeDetails(app.cluster, "node1"),
    "task": lambda app: TaskDetails(app.cluster, RUNS),
    "task-log": lambda app: TaskDetails(app.cluster, RUNS),
    "task-gpus": lambda app: TaskDetails(app.cluster, RUNS),
    "task-events": lambda app: TaskDetails(app.cluster, RUNS),
    "task-files": lambda app: TaskDetails(app.cluster, RUNS),
    "task-script": lambda app: TaskDetails(app.cluster, RUNS),
    "task-why": lambda app: TaskDetails(app.cluster, WAITS),
    "log": lambda app: LogScreen(app.cluster, RUNS, app.client),
    "usage": lambda app: UsageReport(app.cluster),
    "timeline": lambda app: Timeline(app.cluster),
    "envs": lambda app: EnvReport(app.cluster),
    "submit": lambda app: SubmitForm(app.cluster, app.client, {"target": "1x", "command": "python train.py --lr 0.1"}),
    "workflow": lambda app: WorkflowScreen(app.cluster, BOARD["workflow"]["id"]),
    "help": lambda app: Keys(keys_of(app.screen), app.places.title),
}
"""What is opened on top of the views."""
TABS = {"task-log": "2", "task-gpus": "3", "task-events": "4", "task-files": "5", "task-script": "6", "task-why": "2"}


@contextlib.contextmanager
def stillness(folder: Path) -> Iterator[None]:
    """No controller is asked, time stands still, and the settings are in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "start", lambda _: None)
        patch.setattr(Incoming, "tick", lambda _: None)
        patch.setattr(agentless.client.words.time, "time", lambda: NOW)
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        (folder / "agentless").mkdir(exist_ok=True)
        (folder / "agentless" / SEEN).touch()
        yield


@contextlib.asynccontextmanager
async def dashboard(line: Row, size: tuple[int, int], theme: str = "textual-dark") -> AsyncIterator[Eyes]:
    """A dashboard over this cluster, of which everything comes at once, with the samples of the last minutes."""
    app = Dashboard(SceneClient(line))
    async with app.run_test(size=size) as pilot:
        app.theme = theme
        app.cluster.clear()
        app.cluster.gone = ""
        for event in BOARD["events"]:
            app.incoming.take_event(event)
        app.incoming.take(line)
        app.cluster.remember(history(line, points=120))
        yield Eyes(app, pilot)


async def settle(eyes: Eyes) -> None:
    """Wait until all answers are on the screen."""
    app, pilot = eyes.app, eyes.pilot
    for field in (*app.screen.query(Input), *app.screen.query(TextArea)):
        field.cursor_blink = False
    for _ in range(3):
        for worker in list(app.workers):
            with contextlib.suppress(WorkerFailed):  # and what was cancelled: another one was asked instead
                await worker.wait()
        await pilot.pause()
    for pane in app.screen.query(LogPane):
        await eyes.see(lambda pane=pane: pane.log_lines.source is pane.spool)
        await pilot.pause()


async def walk(eyes: Eyes) -> AsyncIterator[str]:
    """Show one after the other."""
    app = eyes.app
    for number, view in enumerate(VIEWS, 1):
        if view == "vps":
            app.incoming.take({"tasks": BOARD["vps"]})
        await eyes.press(str(number))
        yield view
    for name, make in OPENED.items():
        await app.push_screen(make(app))
        if name in TABS:
            await eyes.press(TABS[name])
        yield name
        app.pop_screen()
        await eyes.pilot.pause()
