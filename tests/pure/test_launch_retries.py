"""A launch whose outcome nobody knows is tried again with a pause, and one that nobody waits for any more is heard."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from agentless.controller.nodes.cluster_link import ClusterLink
from agentless.controller.state.event_bus import EventBus, LaunchWanted
from agentless.controller.tasks.launch.launcher import Launcher
from agentless.errors import NoAnswer
from agentless.model.tasks.task import Task
from tests.pure.build import task

WAITS = task("t1", "hpc", "assigning")


class Unclear(Launcher):
    """Launches on a cluster that never says whether it has the job. `tries` are their times, `now` is the time."""

    def __init__(self) -> None:
        self.now, self.tries, self.bus, self.answers = 1000.0, list[float](), EventBus(), asyncio.Event()
        nodes = SimpleNamespace(every={"hpc": Mock(spec=ClusterLink)})
        ledger = SimpleNamespace(tasks=SimpleNamespace(live={WAITS.id: WAITS}, launching=set()), stores=Mock())
        clock = SimpleNamespace(now=lambda: self.now)
        others: Any = Mock()
        super().__init__(nodes, ledger, others, others, others, self.bus, clock)  # type: ignore[arg-type]

    async def place(self, task: Task, *, held: bool = False, created: str = "") -> Any:
        del task, held, created
        self.tries.append(self.now)
        await self.answers.wait()
        raise NoAnswer("hpc may have submitted task t1")


async def test_a_cluster_that_does_not_say_whether_it_has_a_job_is_asked_again_with_longer_pauses() -> None:
    launcher = Unclear()
    launcher.answers.set()
    for _ in range(240):  # two minutes of looks
        launcher.bus.emit(LaunchWanted(WAITS))
        for _ in range(5):
            await asyncio.sleep(0)
        launcher.now += 0.5
    assert [later - sooner for sooner, later in zip(launcher.tries, launcher.tries[1:], strict=False)][:6] == [
        2, 4, 8, 16, 16, 16,
    ]  # fmt: skip


async def test_a_launch_that_fails_when_nobody_waits_for_it_any_more_is_logged_in_a_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    launcher, told = Unclear(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await launcher.first(WAITS.id, lambda _: False)
    launcher.answers.set()
    for _ in range(9):
        await asyncio.sleep(0)
    gc.collect()
    assert (told, caplog.messages) == ([], ["task t1: launch: hpc may have submitted task t1"])
