"""How fast a node is reached: measured by what it takes to send it a little, and remembered for a while."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable

from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError
from agentless.model.command import Command
from agentless.remote.worker import CHUNK

PROBE = 8 * CHUNK
WITHIN = 1.0
"""Seconds after which the rest of a probe does not matter any more."""
REMEMBER = 3600.0


class Speeds:
    """Bytes per second to nodes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}

    async def slowest(self, links: Iterable[NodeLink]) -> float:
        """That of the slowest of them that answer."""
        return min(await asyncio.gather(*(self._of(link) for link in links)))

    async def _of(self, link: NodeLink) -> float:
        now = asyncio.get_running_loop().time
        began = now()
        known = self._known.get(link.node.name)
        if known is None or began - known[0] > REMEMBER:
            try:
                async with asyncio.timeout(WITHIN):
                    await link.session.feed(Command("cat >/dev/null\n", timeout=30.0), _zeros())
            except TimeoutError:
                pass
            except AgentlessError:
                return math.inf  # whoever sends to it will find out
            known = self._known[link.node.name] = began, PROBE / (now() - began)
        return known[1]


async def _zeros() -> AsyncIterator[bytes]:
    for _ in range(PROBE // CHUNK):
        yield bytes(CHUNK)
