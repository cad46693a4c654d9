"""A controller in the process of the test, so that a test can look into it and move its clock."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.submit.request import Submit
from agentless.demo.fleet import Fleet
from agentless.model.caller import Caller
from agentless.model.containers.log_query import LogQuery
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from tests.fleet.client import until


def me(controller: Controller) -> Caller:
    """The one whose controller it is."""
    return Caller(controller.tasks.owner)


class Clock:
    """Tells the time of a controller, which may be in the future."""

    def __init__(self, clock) -> None:
        self._clock, self.ahead = clock, 0.0

    def now(self) -> float:
        return self._clock.now() + self.ahead


class Desk:
    """Somebody with a controller of their own, which runs as long as `running`."""

    def __init__(self, root: Path, fleet: Fleet) -> None:
        self.fleet, self.state, self.inventory = fleet, root / "state", root / "inventory.yaml"
        self.state.mkdir(parents=True)
        self.write()

    def write(self, keep: str = "{}", without: str = "nowhere") -> None:
        lines = self.fleet.inventory.read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if not line.strip().startswith(f"{without}:"))
        self.inventory.write_text(text + f"keep: {keep}\n")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Controller]:
        self.clock = Clock(SystemClock())
        controller = self.controller = Controller(self.state, self.inventory, self.clock)
        await controller.start()
        try:
            for link in controller.nodes.links.values():
                await link.ready()
            yield controller
        finally:
            await controller.close()

    async def submit(self, script: str, node: str = "n1") -> str:
        spec = TaskSpec(("sh", "-c", script), needs=parse_target(node))
        (start,) = await self.controller.submission.submit(Submit((spec,), {}, me(self.controller)))
        assert start.task, start.message
        return start.task.id

    async def ended(self, script: str, node: str = "n1") -> str:
        """A task that has ended, and whose log is kept."""
        task = await self.submit(script, node)
        assert not (await self.controller.commands.wait(task, 20)).live
        await until(lambda: self.kept(task) and not self.controller.retention.busy)
        return task

    async def empty(self) -> None:
        """Wait until there is no container on n1 any more, and the controller knows."""
        await until(lambda: not self.fleet.nodes["n1"].engine.containers)
        await until(lambda: not self.controller.nodes.links["n1"].containers)

    def kept(self, task: str) -> str | None:
        return self.controller.retention._logs.state(task)

    async def log(self, task: str, **query: object) -> dict[int, bytes]:
        found = {1: b"", 2: b"", 3: b""}
        async for stream, data in self.controller.logs.read(task, LogQuery(**query)):
            found[stream] += data
        return found
