"""The stream that screens live on: everything there is, then what changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Protocol
from weakref import WeakValueDictionary

import orjson
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from agentless.controller.http.caller import CurrentCaller
from agentless.controller.http.live_feed import FeedServices, LiveFeed
from agentless.controller.lifetime import Lifetime
from agentless.controller.state.event_bus import EventBus
from agentless.controller.status import Status
from agentless.model.caller import Caller
from agentless.model.view import ControllerView
from agentless.ports import Clock

LOOK_EVERY = 0.25
"""Seconds between two looks when there are no news: fresh numbers are none."""
GATHER = 0.03
"""Seconds for which news are gathered before they are sent."""
SIGN = 2.0
"""Seconds without news after which a line says that there are none: who hears nothing at all knows that too."""
APART = 0.1
"""Seconds between two lines at least, gathering included."""


class WatchServices(FeedServices, Protocol):
    """The parts that this request uses."""

    bus: EventBus
    clock: Clock
    lifetime: Lifetime
    status: Status


def add_to(app: FastAPI, services: WatchServices) -> None:
    """Add it."""
    feeds: WeakValueDictionary[Caller, LiveFeed] = WeakValueDictionary()

    @app.get("/v1/watch")
    async def watch(caller: CurrentCaller) -> StreamingResponse:
        """Stream changed rows, one JSON object per line; the first line contains all rows.

        A line has any of `nodes`, `gpus`, `clusters`, `tasks` (up to 1,000 ended tasks, newest first), `workflows`
        (without their jobs; up to 100 ended ones), `gone` (`["tasks", ID]`, `["workflows", ID]`, `["nodes", NAME]`,
        `["clusters", NAME]`, `["gpus", NODE, UUID]`) and `controller`, and always `now` (Unix seconds, controller's
        clock). A stopped controller sends `{"leaving": true}` as its last line.
        """
        feed = feeds.get(caller) or feeds.setdefault(caller, LiveFeed(services, caller))
        return StreamingResponse(_lines(services, feed), media_type="application/x-ndjson")


async def _lines(services: WatchServices, feed: LiveFeed) -> AsyncIterator[bytes]:
    sent = 0.0
    shown: ControllerView | None = None
    with feed.followed() as follower, services.bus.waking() as news:
        while not services.lifetime.leaving:
            news.clear()
            feed.refresh()
            rows = feed.news(follower)
            if (about := services.status.describe()) != shown:
                shown, rows["controller"] = about, [about]
            if rows or time.monotonic() - sent > SIGN:
                sent = time.monotonic()
                yield orjson.dumps({"now": services.clock.now(), **rows}) + b"\n"
                await asyncio.sleep(APART - GATHER)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await news.wait()
            await asyncio.sleep(GATHER)
    yield b'{"leaving":true}\n'
