"""The connection to one node: made, kept, and made anew after a break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agentless.controller.nodes.link.cache import NodeCache
from agentless.errors import AgentlessError, AuthFailed, HostKeyRejected, NobodyThere, TooMuch, Unreachable
from agentless.remote.session import Session
from agentless.rules.nodes.backoff import backoff

REJECTED_RETRY = 60.0
"""Seconds before a server that rejected us, or that we rejected, is tried again unasked: hammering gets one banned.

So it is with one that said too much: to hear all that again at once would be the load that it was ended for. And a
ProxyCommand may open a browser for its login, each time."""
HELD = 30.0
"""Seconds that a link must have held for the next try after a break to be a first one.

A server that drops us soon after each login is not to be called every second."""
_log = logging.getLogger(__name__)


class NodeConnection:
    """A session that is kept.

    `failure` is why the node cannot be reached now, `offline_since` from when on (Unix seconds); both are None while it
    can. `logged_in` is whether the last try got through the login. `answered` is set once it has answered or is known
    not to.
    """

    def __init__(self, session: Session, cache: NodeCache) -> None:
        self.failure: AgentlessError | None = None
        self.offline_since: float | None = cache.now()
        self.logged_in = False
        self.answered = asyncio.Event()
        self._session = session
        self._cache = cache
        self._wake = asyncio.Event()

    async def ready(self, *, within: float = 20.0) -> None:
        """Wait until the node has answered or is known not to; a node in back-off is tried at once."""
        if not self._cache.online:
            self.answered.clear()
            self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.answered.wait()

    async def renew(self, *, within: float = 20.0) -> None:
        """Log in anew: a login keeps the groups that it began with. What runs on the connection breaks off."""
        self.answered.clear()
        await self._session.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.answered.wait()
        await self.ready(within=within)

    async def keep(self, greet: Callable[[], Awaitable[None]], attend: Callable[[], Awaitable[None]]) -> None:
        """Stay connected, for ever.

        Once connected, the node has to `greet` to count as reached; then it is attended to until that raises.
        """
        attempt, time = 0, asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            since = math.inf
            try:
                self.logged_in = False
                await self._session.connect()
                self.logged_in = True
                await greet()
                self.failure, self.offline_since, since = None, None, time()
                self.answered.set()
                await attend()
            except AgentlessError as error:
                self._lost(error)
            except Exception as error:  # noqa: BLE001 - one node must not end the controller
                _log.exception("%s: unexpected error on the connection", self._cache.name)
                self._lost(Unreachable(f"unexpected error in agentless: {error!r}; please report this"))
            await self._session.close()
            if time() - since >= HELD:
                attempt = 0
            wait = backoff(attempt, random.random())  # noqa: S311 - jitter
            if isinstance(self.failure, (AuthFailed, HostKeyRejected, NobodyThere, TooMuch)):
                wait = REJECTED_RETRY
            attempt += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    def _lost(self, error: AgentlessError) -> None:
        self.failure = error
        if self.offline_since is None:
            self.offline_since = self._cache.now()
        why = str(error).removeprefix(f"{self._cache.name}: ")
        self._cache.observe(replace(self._cache.observation, error=why))
        self.answered.set()
