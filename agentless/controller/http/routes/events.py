"""The request for events, recorded and new ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Protocol

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.lookup import Lookup
from agentless.controller.state.tasks import Tasks
from agentless.model.tasks.spec import MAX_NUMBER


class EventServices(Protocol):
    """The parts that this request uses."""

    bus: EventBus
    lookup: Lookup
    tasks: Tasks


def add_to(app: FastAPI, services: EventServices) -> None:
    """Add it."""

    @app.get("/v1/events")
    async def events(
        task: str | None = None,
        last: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        since: float = 0.0,
        after: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
        follow: bool = True,
    ) -> StreamingResponse:
        """Stream events, one JSON object per line; with `follow`, also new ones as they happen.

        The stream starts after event number `after`, or with the `last` events since `since` (Unix seconds). With
        `task`, it contains only events of that task.
        """
        only = None if task is None else services.lookup.find(task).id
        seq = services.tasks.history.last_events(last, since, only) if after is None else after
        return StreamingResponse(_lines(services, seq, only, follow), media_type="application/x-ndjson")


async def _lines(services: EventServices, seq: int, task: str | None, follow: bool) -> AsyncIterator[bytes]:
    with services.bus.listen() as news:
        yield b""
        while True:
            while found := services.tasks.history.events(seq, 1000, task):
                seq = found[-1][0]
                yield b"".join(b'{"seq":%d,%b\n' % (number, document[1:]) for number, document in found)
            if not follow:
                return
            await anext(news)
