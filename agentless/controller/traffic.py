"""Counts requests in progress: a controller without requests may exit."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from agentless.ports import Clock


class Traffic:
    """Number of requests in progress, and the time of the last one."""

    def __init__(self, clock: Clock) -> None:
        self.open = 0
        self.last = clock.now()
        self._clock = clock

    def begin(self) -> None:
        """A request begins."""
        self.open += 1

    def end(self) -> None:
        """A request has ended."""
        self.open -= 1
        self.last = self._clock.now()


class Counting:
    """ASGI wrapper that counts requests."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        self._traffic.begin()
        try:
            await self._app(scope, receive, send)
        finally:
            self._traffic.end()
