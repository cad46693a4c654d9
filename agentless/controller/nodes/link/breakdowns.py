"""Whether launches succeed on one node: what is observed of it beside what it says itself."""

from __future__ import annotations

from dataclasses import replace

from agentless.controller.nodes.link.cache import NodeCache
from agentless.errors import NodeBroken
from agentless.model.nodes.node import Breakdown
from agentless.model.tasks.task import Task
from agentless.rules.nodes import breakdown


class Breakdowns:
    """The breakdown of a node, from the launch that shows it to whatever shows that it is over."""

    def __init__(self, cache: NodeCache) -> None:
        self._cache = cache

    def failed(self, task: Task, error: NodeBroken) -> None:
        """A launch of this task has failed here for a reason of the node: from now on it is degraded."""
        broken = breakdown.failed(self._broken, error, self._cache.now(), bare=task.spec.on_node_itself)
        self._set(replace(broken, reason=broken.reason.removeprefix(f"{self._cache.name}: ")))

    def succeeded(self, task: Task) -> None:
        """This task has started here: what it shows to work is not broken any more."""
        broken = self._broken
        if broken and broken.is_tried_by(bare=task.spec.on_node_itself, gpus=task.spec.needs.gpus > 0):
            self._set(None)

    def mended(self) -> str | None:
        """Somebody says that launches succeed again; why they did not, None when they did."""
        broken = self._broken
        if broken is None:
            return None
        self._set(None)
        return broken.reason

    def restarted(self) -> None:
        """The engine was away, or the whole node: a breakdown may be over."""
        if broken := self._broken:
            self._set(breakdown.restarted(broken))

    def engine_answered(self) -> None:
        """The engine names its containers: if that was broken, it is not any more."""
        if (broken := self._broken) and broken.fault == "engine":
            self._set(None)

    @property
    def _broken(self) -> Breakdown | None:
        return self._cache.observation.broken

    def _set(self, broken: Breakdown | None) -> None:
        self._cache.observe(replace(self._cache.observation, broken=broken))
