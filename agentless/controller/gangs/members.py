"""What a gang asks of the nodes of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.launcher import Launcher
from agentless.errors import NoAnswer
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.task import Task
from agentless.remote import gang_look
from agentless.render import Renderer
from agentless.rules.tasks.meeting import met


class MemberNodes:
    """Asks the nodes of a gang."""

    def __init__(self, nodes: Nodes, ledger: Ledger, launcher: Launcher, renderer: Renderer) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._launcher = launcher
        self._renderer = renderer

    async def ready(self, members: Sequence[Task]) -> None:
        """Wait until their nodes have answered, or are known not to."""
        await asyncio.gather(*(self._nodes.link_of(task).ready() for task in members))

    async def meet(self, members: Sequence[Task]) -> list[Gang]:
        """How the members reach each other, by rank. Raises NoAnswer or Refused."""
        links = {task.node: self._nodes.link_of(task) for task in members}
        command = gang_look.look(self._renderer)
        results = await asyncio.gather(*(link.run(command) for link in links.values()))
        looks = {link.node.name: gang_look.parse(result) for link, result in zip(links.values(), results, strict=True)}
        nodes = {link.node.name: link.node for link in links.values()}
        return met(members, nodes, looks, self._ledger.tasks.live.values())

    async def hold(self, task: Task) -> str:
        """Create the container of a member, which claims its GPUs; gives its id."""
        return (await self._launcher.place(task, held=True))[1]

    async def start(self, task: Task) -> str:
        """Start a member; gives the id of its container."""
        return (await self._launcher.place(task))[1]

    async def undo(self, task: Task, *, force: bool) -> None:
        """Remove what was created of a member, and with `force` what was started. Raises NoAnswer."""
        if task.placement is None:
            return
        link = self._nodes.link_of(task)
        launch = link.launch(task, task.placement, {})
        result = await link.run(link.runtime.undo(launch, force=force))
        if not result.ok:
            raise NoAnswer(f"{link.node.name} did not remove the container of task {task.id}: {result.err[:200]}")

    def is_unfit_everywhere(self, task: Task) -> bool:
        """Whether only the node that cannot start a member could ever run it."""
        return self._launcher.is_unfit_everywhere(task)
