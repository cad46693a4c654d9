"""The requests about numbers: of GPUs over time, of what was used, and for Prometheus."""

from __future__ import annotations

from typing import Annotated, Protocol

import orjson
from fastapi import FastAPI, Query
from fastapi.responses import Response
from pydantic import Field, FiniteFloat

from agentless.controller.nodes.registry import Nodes
from agentless.controller.usage.samples import Samples
from agentless.controller.usage.scrape import Scrape
from agentless.controller.usage.usage import Usage
from agentless.model.usage.figures import By, HistoryView, UsageView
from agentless.rules.scheduling.timeline.reservations import LATEST
from agentless.rules.usage.series import LEVELS


class FigureServices(Protocol):
    """The parts that these requests use."""

    nodes: Nodes
    samples: Samples
    usage: Usage
    metrics: Scrape


def add_to(app: FastAPI, services: FigureServices) -> None:
    """Add them."""

    @app.get("/v1/history", response_model=HistoryView)
    async def history(
        since: Annotated[FiniteFloat, Query(ge=1, le=LEVELS[-1].kept)],
        points: Annotated[int, Query(ge=1, le=3600)],
        gpu: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI takes a copy
        node: Annotated[list[str], Query()] = [],  # noqa: B006
    ) -> Response:
        """Return `points` values of the last `since` seconds for each `gpu` (`node1::0`, or `node1` for all its GPUs).

        For each `node`, it returns how busy the machine was. Without both, it returns all GPUs.

        Older values have a lower resolution, so they repeat.
        """
        await services.nodes.heard()
        # As it is: to check half a million numbers takes longer than to find them.
        found = await services.samples.history(gpu, since, points, node)
        return Response(orjson.dumps(found), media_type="application/json")

    @app.get("/v1/usage")
    async def usage(
        edge: Annotated[list[Annotated[float, Field(ge=0, le=LATEST)]], Query()], by: By = "owner"
    ) -> UsageView:
        """Return the GPU usage between consecutive `edge` times (Unix seconds), and in total."""
        await services.nodes.heard()
        return await services.usage.view(edge, by)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return metrics in the format of Prometheus."""
        return await services.metrics.answer()
