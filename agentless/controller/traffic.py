"""Requests under way, counted: a controller that nobody asks for anything may leave."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from agentless.ports import Clock


class Traffic:
    """Requests under way, and when there was the last one."""

    def __init__(self, clock: Clock) -> None:
        self.open = 0
        self.last = clock.now()
        self._clock = clock

    def begin(self) -> None:
        """One more."""
        self.open += 1

    def end(self) -> None:
        """One is over."""
        self.open -= 1
        self.last = self._clock.now()


class Counting:
    """The API with its traffic counted."""

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
