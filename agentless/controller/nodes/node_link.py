"""One node, as the rest of the controller has it: what is known of it, and what can be run there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentless.controller.nodes.link.breakdowns import Breakdowns
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.inspector import Inspector
from agentless.controller.nodes.link.link import Link, LinkListener
from agentless.controller.nodes.link.sampler import Sampler
from agentless.controller.nodes.link.watcher import Watcher
from agentless.errors import RuntimeFailed
from agentless.model.containers.launch import Launch
from agentless.model.files.file_spec import Prepared
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.task import Placement, Task
from agentless.model.text import Excerpt
from agentless.ports import Clock, Engine, Probe
from agentless.remote.session import Session
from agentless.render import Renderer

STREAMED = 4
"""Sessions that a node must give for samples to have one of their own; else they are asked for, one by one."""
FOLLOWED = 3
"""Likewise for events. A node that gives fewer leaves one to commands, and where it gives two, the other to users."""
RELAYED = 2.0
"""Seconds between two looks at whether they may have theirs."""


class NodeLink(Link):
    """Puts the parts of a link together, and decides which of them may have a session of their own on the node.

    The properties read the cache: they never wait for the node.
    """

    def __init__(
        self,
        node: NodeConfig,
        session: Session,
        probe: Probe,
        engines: NodeEngines,
        renderer: Renderer,
        clock: Clock,
        listener: LinkListener,
    ) -> None:
        super().__init__(node, session, clock, listener)
        self.engines = engines
        self.runtime = engines.runtime
        self.breakdowns = Breakdowns(self.cache)
        self.sampler = Sampler(session, probe, engines, renderer, self.cache)
        self.inspector = Inspector(session, engines, self.cache, self.sampler, self.breakdowns)
        self.watcher = Watcher(session, engines, self.cache, self.inspector, self.breakdowns)
        self.image_ids: Mapping[str, str] = {}

    def id_here(self, image: str) -> str:
        """What the node calls the image of an env that has this id elsewhere; its image store may be another one."""
        return self.image_ids.get(image, image)

    # ------------------------------------------------------------ life cycle

    async def _greet(self) -> None:
        await self.inspector.refresh()
        self.breakdowns.restarted()

    async def _attend(self) -> None:
        """Sample and follow until one of them breaks; raises what broke."""
        while True:
            streamed, followed = self._may_have(STREAMED), self._may_have(FOLLOWED)
            loops = [
                asyncio.create_task(self.sampler.sample(streamed=streamed)),
                asyncio.create_task(self.watcher.watch(followed=followed)),
                asyncio.create_task(self.watcher.refresh_regularly()),
            ]
            try:
                while (streamed, followed) == (self._may_have(STREAMED), self._may_have(FOLLOWED)):
                    done, _ = await asyncio.wait(loops, timeout=RELAYED, return_when=asyncio.FIRST_EXCEPTION)
                    for loop in done:
                        loop.result()
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)

    def _may_have(self, sessions: int) -> bool:
        """Whether the node gives so many sessions, as far as is known."""
        known = self.session.sessions
        return known is None or known.total is None or known.total >= sessions

    # ------------------------------------------------------------ what can be run there

    def launch(
        self, task: Task, placement: Placement, secrets: Mapping[str, str], prepared: Prepared | None = None
    ) -> Launch:
        """The launch of a task here, by what is known of the node now."""
        image = task.spec.image_id
        image_id = image and self.id_here(image)
        return Launch(
            task, placement, secrets=secrets, prepared=prepared, engine=self.observation.engine, image_id=image_id
        )

    def runtime_of(self, task: Task) -> Engine:
        """What runs this task here."""
        return self.engines.runtime_of(task)

    async def pull(self, image: str, *, missing: bool = True) -> None:
        """Have the node fetch a plain image, which may be there if not `missing`; raises RuntimeFailed or NoAnswer."""
        said = Excerpt()
        async with self.stream(self.runtime.images.pull(image)) as stream:
            async for _, data in stream:
                said.add(data)
        if stream.exit_code != 0:
            why = self.runtime.complaint(str(said))
            name = self.node.name
            what = (
                f"is not on {name} and cannot be pulled" if missing else f"cannot be pulled on {name} (--pull always)"
            )
            raise RuntimeFailed(f"image {image} {what}: {why}")

    # ------------------------------------------------------------ what is known of it

    async def look(self, task: str, runtime: Engine | None = None) -> None:
        """Ask for the container of one task, and report it as present or absent. None: the engine's."""
        await self.inspector.look(task, runtime or self.runtime)

    async def refresh(self) -> None:
        """Ask for everything: GPUs, host, engine, containers."""
        await self.inspector.refresh()

    def pace(self, who: object, every: float | None) -> None:
        """Sample it so often for somebody (seconds), None: as usual."""
        self.sampler.pace(who, every)

    @property
    def has_stranger(self) -> bool:
        """Whether a process outside all containers uses one of its GPUs."""
        return self.cache.has_stranger
