"""Whether launches succeed on one node, by the launches themselves."""

from __future__ import annotations

from dataclasses import replace

from agentless.controller.nodes.link.cache import NodeCache
from agentless.errors import NodeBroken
from agentless.model.nodes.node import Breakdown
from agentless.model.tasks.task import Task
from agentless.rules.nodes import breakdown


class Breakdowns:
    """Sets the breakdown in the cache when a launch fails, and clears it when something shows that it is over."""

    def __init__(self, cache: NodeCache) -> None:
        self._cache = cache

    def failed(self, task: Task, error: NodeBroken) -> None:
        """A launch of this task failed for a reason of the node: the node is degraded from now on."""
        broken = breakdown.failed(self._broken, error, self._cache.now(), bare=task.spec.on_node_itself)
        self._set(replace(broken, reason=broken.reason.removeprefix(f"{self._cache.name}: ")))

    def succeeded(self, task: Task) -> None:
        """This task started: clear the breakdown of what it used."""
        broken = self._broken
        if broken and broken.is_tried_by(bare=task.spec.on_node_itself, gpus=task.spec.needs.gpus > 0):
            self._set(None)

    def mended(self) -> str | None:
        """Clear the breakdown because a person says so; its reason, None if there was none."""
        broken = self._broken
        if broken is None:
            return None
        self._set(None)
        return broken.reason

    def restarted(self) -> None:
        """The engine, or the whole node, was away and is back: the next task may try soon."""
        if broken := self._broken:
            self._set(breakdown.restarted(broken))

    def engine_answered(self) -> None:
        """The engine lists its containers: clear a breakdown of the engine."""
        if (broken := self._broken) and broken.fault == "engine":
            self._set(None)

    @property
    def _broken(self) -> Breakdown | None:
        return self._cache.observation.broken

    def _set(self, broken: Breakdown | None) -> None:
        self._cache.observe(replace(self._cache.observation, broken=broken))
