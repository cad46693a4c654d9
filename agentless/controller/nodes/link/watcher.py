"""What happens to the containers of one node, by the events of its engine, and by full looks in case one was missed."""

from __future__ import annotations

import asyncio
import contextlib

from agentless.controller.nodes.link.breakdowns import Breakdowns
from agentless.controller.nodes.link.cache import NodeCache
from agentless.controller.nodes.link.changes import PendingChanges
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.inspector import Inspector
from agentless.controller.nodes.link.limits import EVENT, EVENT_BYTES, LOOKS, flooded
from agentless.errors import NoSession, RuntimeFailed
from agentless.remote.session import Session
from agentless.remote.streams import Stream
from agentless.remote.token_bucket import TokenBucket

REFRESH_EVERY = 60.0
"""Seconds between two full looks at a node, in case an event was missed."""
ENGINE_RETRY = 2.0
"""Seconds between two looks at a node whose engine does not answer."""
RESTS = 5
"""So many times as long as such a look took it is left alone: one that says a lot, or slowly, is not asked for ever."""
OVERLAP = 5.0
"""Seconds before the last full look from which on events are asked for: none may fall between the two."""


class Watcher:
    """Has the inspector look at whatever changes on a node."""

    def __init__(
        self, session: Session, engines: NodeEngines, cache: NodeCache, inspector: Inspector, breakdowns: Breakdowns
    ) -> None:
        self._session = session
        self._engines = engines
        self._cache = cache
        self._inspector = inspector
        self._breakdowns = breakdowns

    async def refresh_regularly(self) -> None:
        """Look at everything each minute; raises what broke."""
        while True:
            await asyncio.sleep(REFRESH_EVERY)
            await self._inspector.refresh()

    async def watch(self, *, followed: bool) -> None:
        """Follow the events; where there is no session for that, look again and again. Raises what broke."""
        took, time = 0.0, asyncio.get_running_loop().time
        while True:
            # Of an engine that did not answer the last full look nothing is known that events could change.
            was_away = self._cache.silence is not None
            if not was_away and followed:
                with contextlib.suppress(NoSession):
                    await self._follow()
                    was_away = True
            await asyncio.sleep(min(REFRESH_EVERY, max(ENGINE_RETRY, took * RESTS)))
            began = time()
            await self._inspector.refresh()
            took = time() - began
            if was_away:
                self._breakdowns.restarted()

    async def _follow(self) -> None:
        """Look at each container that something happens to, until the stream ends: the engine went away.

        What happens while it looks is looked at together afterwards.
        """
        events = self._engines.events(max(0.0, self._inspector.refreshed_at - OVERLAP))
        async with self._session.stream(events, own=True, wait=False) as stream:
            changes, looks = PendingChanges(), TokenBucket(*LOOKS)
            reading = asyncio.create_task(self._read(stream, changes))
            try:
                while some := await changes.take():
                    await asyncio.sleep(looks.take(len(some)))
                    units, containers = self._engines.sort(some)
                    for task in units:
                        await self._inspector.look(task, self._engines.units)
                    if containers:
                        await self._inspector.look_at(containers)
                await reading  # raises what has broken
                self._cache.listed()
            except RuntimeFailed:
                return  # the engine goes away; what else the link carries goes on
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, stream: Stream, changes: PendingChanges) -> None:
        buffer, allowed = b"", TokenBucket(*EVENT_BYTES)
        try:
            async for fd, data in stream:
                if allowed.take(len(data)) or len(buffer) > EVENT:
                    raise flooded(self._session, fd, "too many container events")
                if fd != 1:
                    continue
                *lines, buffer = (buffer + data).split(b"\n")
                for line in (raw.decode("utf-8", "replace") for raw in lines if raw.strip()):
                    event = self._engines.parse_event(line)
                    if event.over is None or not self._cache.knows_ended(event.over):
                        await changes.put(event.change, at_once=event.at_once)
        finally:
            changes.end()
