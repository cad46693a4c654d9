"""Tries whether nodes reach each other as tasks on several nodes do. Nothing stays on them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace

from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError, UsageError
from agentless.model.nodes.check import Check, skipped
from agentless.model.view import CheckView
from agentless.remote import between, gang_look
from agentless.render import Renderer
from agentless.rules.nodes.checks.between import Target, check
from agentless.rules.tasks.gangs.meeting import address_among, free_port, ports_of
from agentless.rules.views.publish import check_view

BEGUN_WITHIN = 5.0
"""Seconds for a node to begin to listen."""
NAME = "between"
"""The check of a node that cannot be tried at all."""


@dataclass(frozen=True, slots=True)
class _Place:
    link: NodeLink
    target: Target


class Between:
    """Runs `agentless doctor --between`."""

    def __init__(self, nodes: Nodes, tasks: Tasks, renderer: Renderer) -> None:
        self._nodes = nodes
        self._tasks = tasks
        self._renderer = renderer

    async def run(self, nodes: Iterable[str]) -> list[CheckView]:
        """Try each pair of these nodes, or of all if none is named, in both directions. Raises UsageError."""
        links = self._nodes.links_to(nodes)
        if len(links) < 2:
            raise UsageError("--between needs two nodes or more")
        looks = await asyncio.gather(*map(self._look, links))
        places = [each for each in looks if isinstance(each, _Place)]
        found: dict[str, list[Check]] = {link.node.name: [] for link in links}
        for link, look in zip(links, looks, strict=True):
            if isinstance(look, Check):
                found[link.node.name].append(look)
        seconds = between.WITHIN * (1 + len(places) // between.AT_ONCE) + 10.0
        async with contextlib.AsyncExitStack() as stack:
            targets = await asyncio.gather(
                *(stack.enter_async_context(self._listening(each, int(seconds + BEGUN_WITHIN))) for each in places)
            )
            said = await asyncio.gather(*(self._try(each, targets, seconds) for each in places))
        for place, answers in zip(places, said, strict=True):
            for number, words in answers.items():
                target = targets[number]
                found[target.node].append(check(place.target.node, place.target.address, target, words))
        return [check_view(name, each) for name, checks in found.items() for each in checks]

    # ------------------------------------------------------------------ inside

    async def _look(self, link: NodeLink) -> _Place | Check:
        await link.ready()
        try:
            look = gang_look.parse(await link.run(gang_look.look(self._renderer)))
        except AgentlessError as error:
            return skipped(NAME, str(error))
        name, address = link.node.name, address_among(link.node, look)
        port = free_port(name, {*look.used, *ports_of({name}, self._tasks.live.values())})
        if port is None:
            return skipped(NAME, "no port is free")
        return _Place(link, Target(name, address, port, look.interfaces.get(address)))

    @contextlib.asynccontextmanager
    async def _listening(self, place: _Place, seconds: int) -> AsyncIterator[Target]:
        """Listen on the port of a node meanwhile, if it can."""
        command = between.listen(self._renderer, place.target.port, seconds)
        async with contextlib.AsyncExitStack() as stack:
            listens = False
            with contextlib.suppress(AgentlessError, TimeoutError):
                stream = await stack.enter_async_context(place.link.stream(command))
                async with asyncio.timeout(BEGUN_WITHIN):
                    async for _, data in stream:
                        listens = between.LISTENING in data
                        break
            yield replace(place.target, listens=listens)

    async def _try(self, place: _Place, targets: list[Target], seconds: float) -> Mapping[int, str]:
        """What a node says of its connections to the others, by their numbers."""
        others = {number: each for number, each in enumerate(targets) if each.node != place.target.node}
        try:
            return between.parse(await place.link.run(between.attempt(self._renderer, others, seconds)), others)
        except AgentlessError:
            return dict.fromkeys(others, "")
