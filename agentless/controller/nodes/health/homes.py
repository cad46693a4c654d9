"""Which node a GPU or an engine belongs to when two nodes report it: see `rules/nodes/twins`."""

from __future__ import annotations

from collections.abc import Callable

from agentless.controller.nodes.health.records import NodeRecords
from agentless.model.nodes.cluster import Observation
from agentless.rules.nodes.twins import marks, may_have, taken


class Homes:
    """`known` maps GPUs and engines, by their marks, to the name of their node."""

    def __init__(self, records: NodeRecords) -> None:
        self.known: dict[str, str] = {}
        self._records = records

    def settle(self, node: str, seen: Observation, observed: Callable[[str], Observation | None]) -> None:
        """Give a node the GPUs and the engine that it reports and that no other node has any more.

        `observed` returns the last observation of another node.
        """
        named, records = marks(seen), self._records.known
        for mark in named:
            if mark not in self.known:  # who had it before the controller was started
                for name, record in records.items():
                    if mark in record.gpus:
                        self.known.setdefault(mark, name)

        def has_still(other: str, mark: str) -> bool:
            known = observed(other)
            return known is not None and may_have(known, mark)

        if new := taken(node, named, self.known, has_still):
            # Of those that it names no more, one that says something else each time leaves nothing.
            gone = {mark for mark, home in self.known.items() if home == node and mark not in named}
            gone -= self._records.of(node).gpus.keys()
            self.known = {mark: home for mark, home in self.known.items() if mark not in gone} | new
