"""`/metrics`: a snapshot of the cluster, rendered in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.usage.usage import Usage
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Task
from agentless.rules.nodes.survey import STALE_AFTER

FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The snapshot. `ended` counts tasks by state and `gpu_seconds` are by owner, both since the start."""

    cluster: Cluster
    tasks: tuple[Task, ...]
    ended: Mapping[str, int]
    gpu_seconds: Mapping[str, float]
    warnings: int

    def is_current(self, node: str) -> bool:
        """Whether the readings of a node are current: those from before a link broke are not."""
        seen = self.cluster.nodes[node].observation
        return seen.error is None and seen.sampled_at is not None and self.cluster.at - seen.sampled_at <= STALE_AFTER


class Scrape:
    """Answers `/metrics`; `warnings` returns the controller's warnings."""

    def __init__(self, nodes: Nodes, ledger: Ledger, usage: Usage, warnings: Callable[[], Sequence[str]]) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._usage = usage
        self._warnings = warnings

    async def answer(self) -> Response:
        """The answer to a scrape."""
        self._usage.count()
        snapshot = MetricsSnapshot(
            self._nodes.cluster(),
            tuple(self._ledger.tasks.live.values()),
            dict(self._ledger.ended),
            dict(self._usage.gpu_seconds),
            len(self._warnings()),
        )
        return Response(await asyncio.to_thread(_text, snapshot), media_type=FORMAT)


def _text(snapshot: MetricsSnapshot) -> bytes:
    from agentless.controller.usage import metrics  # noqa: PLC0415 - 60 ms at first use

    return metrics.text(snapshot)
