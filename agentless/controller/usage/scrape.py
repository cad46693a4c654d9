"""`/metrics`: what is so at one moment, taken down at once, and written out in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from agentless.controller.nodes.registry import Core
from agentless.controller.usage.usage import Usage
from agentless.model.nodes.cluster import Cluster
from agentless.model.tasks.task import Task
from agentless.rules.nodes.survey import STALE_AFTER

FORMAT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Figures:
    """What there is to tell. `ended` counts tasks by state and `gpu_seconds` are by owner, both since the start."""

    cluster: Cluster
    tasks: tuple[Task, ...]
    ended: Mapping[str, int]
    gpu_seconds: Mapping[str, float]
    warnings: int

    def is_current(self, node: str) -> bool:
        """Whether the readings of a node are as of now: what was so before a link broke is not known to be so."""
        seen = self.cluster.nodes[node].observation
        return seen.error is None and seen.sampled_at is not None and self.cluster.at - seen.sampled_at <= STALE_AFTER


async def scrape(core: Core, usage: Usage, warnings: int) -> Response:
    """The answer to a scrape."""
    usage.count()
    figures = Figures(core.cluster(), tuple(core.tasks.values()), dict(core.ended), dict(usage.gpu_seconds), warnings)
    return Response(await asyncio.to_thread(_text, figures), media_type=FORMAT)


def _text(figures: Figures) -> bytes:
    from agentless.controller.usage import metrics  # noqa: PLC0415 - 60 ms, of which a controller that nobody scrapes has none

    return metrics.text(figures)
