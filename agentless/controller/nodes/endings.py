"""Ends programs whose users have left, also those in a container that is paused: when it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from agentless.errors import AgentlessError
from agentless.model.command import Command, Result


class Node(Protocol):
    """Runs commands on a node."""

    async def run(self, command: Command) -> Result:
        """Run a short command; raises NoAnswer."""


class Endings:
    """Runs commands that each end a program. `is_paused` says whether nothing can be ended in a container now."""

    def __init__(self, is_paused: Callable[[str], bool]) -> None:
        self.is_paused = is_paused
        self._running: set[asyncio.Task[None]] = set()
        self._left: defaultdict[str, list[tuple[Node, Command]]] = defaultdict(list)

    def begin(self, node: Node, container: str, command: Command) -> None:
        """End a program in the background."""
        if self.is_paused(container):
            self._left[container].append((node, command))
            return
        ending = asyncio.create_task(self._end(node, container, command))
        self._running.add(ending)
        ending.add_done_callback(self._running.discard)

    def changed(self, container: str) -> None:
        """It is no longer paused, or has ended."""
        for node, command in self._left.pop(container, ()):
            self.begin(node, container, command)

    async def _end(self, node: Node, container: str, command: Command) -> None:
        with contextlib.suppress(AgentlessError):
            result = await node.run(command)
            if not result.ok and self.is_paused(container):
                self._left[container].append((node, command))
