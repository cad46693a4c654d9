"""The configuration of a Slurm cluster with the nodes of the inventory."""

from __future__ import annotations

import asyncio
import socket

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.served_inventory import ServedInventory
from agentless.controller.state.reservation_book import ReservationBook
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError
from agentless.model.nodes.node import naming
from agentless.model.view import SlurmNodeView, SlurmView
from agentless.ports import Clock
from agentless.remote import slurm_look
from agentless.render import Renderer
from agentless.rules.slurm.conf import Wanted
from agentless.rules.slurm.files import slurm_files
from agentless.rules.slurm.machine import Look, Machine, machine_of


class SlurmConfig:
    """Makes it. Every node is asked, and nothing is changed."""

    def __init__(
        self,
        nodes: Nodes,
        tasks: Tasks,
        reservations: ReservationBook,
        served: ServedInventory,
        renderer: Renderer,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._tasks = tasks
        self._reservations = reservations
        self._served = served
        self._renderer = renderer
        self._clock = clock

    async def make(self, *, check: bool) -> SlurmView:
        """The files; with `check` also what Slurm's programs on the nodes say of them."""
        await self._nodes.heard()
        links = self._nodes.links
        answers = await asyncio.gather(*(self._look(link, check=check) for link in links.values()))
        looks = dict(zip(links, answers, strict=True))
        machines: dict[str, Machine] = {}
        silent: dict[str, str] = {}
        for name, node in self._nodes.cluster().nodes.items():
            look = looks.get(name, "just added to the inventory; run the command again")
            machine = machine_of(node, look) if isinstance(look, Look) else look
            if isinstance(machine, Machine):
                machines[name] = machine
            else:
                silent[name] = naming(name, machine)
        made = slurm_files(list(machines.values()), self._wanted(), silent.values())
        said = {name: look for name, look in looks.items() if isinstance(look, Look)}
        return SlurmView(
            dict(made.texts),
            tuple(
                SlurmNodeView(name, line, said[name].slurmd, said[name].slurmctld, said[name].sinfo)
                for name, line in made.lines.items()
            ),
            silent,
            tuple(f"{name}, not included: {words}" for name, each in machines.items() for words in each.left_out),
        )

    async def _look(self, link: NodeLink, *, check: bool) -> Look | str:
        """What a node says, or why it says nothing."""
        try:
            name = link.node.name if check else ""
            return slurm_look.parse(await link.run(slurm_look.look(self._renderer, name)))
        except AgentlessError as error:
            return str(error)

    def _wanted(self) -> Wanted:
        inventory = self._served.inventory
        tasks = self._tasks.live.values()
        return Wanted(
            socket.gethostname(),
            inventory.policy,
            inventory.half_life,
            inventory.idle.preempt is not None or any(task.spec.terms.preemptible for task in tasks),
            tuple(each for each in self._reservations.known.values() if each.end > self._clock.now()),
        )
