"""What a gang asks of the nodes of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import asyncssh

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.tasks.launch.launcher import Launcher
from agentless.errors import NoAnswer, NodeBroken
from agentless.model.tasks.gang import GANG_KEY, Gang
from agentless.model.tasks.task import Task
from agentless.remote import gang_look
from agentless.render import Renderer
from agentless.rules.tasks.gangs.meeting import Surroundings, met


class MemberNodes:
    """Asks the nodes of a gang."""

    def __init__(self, nodes: Nodes, ledger: Ledger, launcher: Launcher, renderer: Renderer) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._launcher = launcher
        self._renderer = renderer

    async def ready(self, members: Sequence[Task]) -> None:
        """Wait until their nodes have answered, or are known not to."""
        await asyncio.gather(*(self._nodes.link(task.node or "").ready() for task in members))

    async def look(self, task: Task) -> Surroundings:
        """How others reach the node of a member. Raises NoAnswer, or NodeBroken if the node answers other things."""
        link = self._nodes.link(task.node or "")
        try:
            return gang_look.parse(await link.run(gang_look.look(self._renderer)))
        except NoAnswer as error:
            if not link.online:
                raise
            broken = NodeBroken(str(error))
            link.breakdowns.failed(task, broken)
            raise broken from error

    def meet(self, members: Sequence[Task], looks: Mapping[str, Surroundings]) -> list[Gang]:
        """How the members reach each other, by rank; `looks` are by task. Raises NodeUnfit for one of the nodes."""
        nodes = {link.node.name: link.node for link in map(self._nodes.link_of, members)}
        by_node = {task.node or "": looks[task.id] for task in members}
        gangs = met(members, nodes, by_node, self._ledger.tasks.live.values())
        if gangs[0].launcher == "mpirun":
            self._give_key(members)
        return gangs

    def _give_key(self, members: Sequence[Task]) -> None:
        """Have a new SSH key for the members; it is kept until all have started, since a launch may be repeated."""
        key = asyncssh.generate_private_key("ssh-ed25519").export_private_key("openssh").decode().strip()
        secrets = self._ledger.stores.secrets
        for task in members:
            secrets.put(task.id, {**secrets.get(task.id), GANG_KEY: key})

    async def hold(self, task: Task) -> str:
        """Create the container of a member, which claims its GPUs; gives its id."""
        return (await self._launcher.place(task, held=True))[1]

    async def start(self, task: Task, created: str = "") -> str:
        """Start a member, of which `created` is the container if it is new; gives the id of its container."""
        return (await self._launcher.place(task, created=created))[1]

    async def undo(self, task: Task, *, force: bool) -> None:
        """Remove what was created of a member, and with `force` what was started. Raises NoAnswer."""
        if task.placement is None:
            return
        link = self._nodes.link(task.node or "")
        launch = link.launch(task, task.placement, {})
        result = await link.run(link.runtime.undo(launch, force=force))
        if not result.ok:
            raise NoAnswer(f"{link.node.name} did not remove the container of task {task.id}: {result.err[:200]}")

    def is_unfit_everywhere(self, task: Task) -> bool:
        """Whether only the node that cannot start a member could ever run it."""
        return self._launcher.is_unfit_everywhere(task)
