"""`/metrics`: a snapshot of the cluster, rendered in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.responses import Response

from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.controller.usage.metrics_snapshot import MetricsSnapshot
from agentless.controller.usage.usage import Usage

FORMAT = "text/plain; version=0.0.4; charset=utf-8"


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
            tuple(self._nodes.cluster_views()),
        )
        return Response(await asyncio.to_thread(_text, snapshot), media_type=FORMAT)


def _text(snapshot: MetricsSnapshot) -> bytes:
    from agentless.controller.usage import metrics  # noqa: PLC0415 - 60 ms at first use

    return metrics.text(snapshot)
