"""Secrets that jobs have left on the disks of their clusters: they are removed once their task has ended."""

from __future__ import annotations

import asyncio
import logging

from agentless.controller.nodes.cluster_link import ClusterLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.event_bus import ContainersSeen, EventBus
from agentless.controller.state.ledger import Ledger
from agentless.errors import AgentlessError
from agentless.ports import Clock

AGAIN_AFTER = 600.0
"""Seconds before those that could not be removed are tried again: each try makes a cluster look at once."""

_log = logging.getLogger(__name__)


class LeftSecrets:
    """Removes them after each look that has shown some. A job that begins removes its own."""

    def __init__(self, nodes: Nodes, ledger: Ledger, bus: EventBus, clock: Clock) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._clock = clock
        self._failed: dict[str, float] = {}  # when, by task
        self._at_work: dict[str, asyncio.Task[None]] = {}
        bus.subscribe(ContainersSeen, self._seen)

    async def close(self) -> None:
        """Cancel what is in progress; the next controller sees what is left."""
        work = [*self._at_work.values()]
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    # ------------------------------------------------------------------ inside

    def _seen(self, seen: ContainersSeen) -> None:
        link = self._nodes.clusters.get(seen.node)
        if link is None or seen.node in self._at_work:
            return
        engine, now = link.observation.engine, self._clock.now()
        self._failed = {task: at for task, at in self._failed.items() if 0 <= now - at < AGAIN_AFTER}
        left = (task for task in (engine.secrets if engine else ()) if task not in self._failed)
        if ended := [task for task in left if self._has_ended(task)]:
            self._at_work[seen.node] = asyncio.create_task(self._remove(link, ended), name=f"secrets on {seen.node}")

    def _has_ended(self, task: str) -> bool:
        """Whether a task has ended, or was removed since. An unknown one is that of another controller."""
        tasks = self._ledger.tasks
        return task not in tasks.live and (tasks.history.has(task) or self._ledger.was_forgotten(task))

    async def _remove(self, link: ClusterLink, tasks: list[str]) -> None:
        try:
            link.runtime.check(await link.run(link.runtime.remove_secrets(tasks)))
        except AgentlessError as error:
            self._failed |= dict.fromkeys(tasks, self._clock.now())
            _log.warning("%s: removing secrets of ended tasks: %s", link.node.name, error)
        finally:
            del self._at_work[link.node.name]
