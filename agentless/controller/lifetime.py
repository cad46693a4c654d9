"""When the controller exits: on request, or after it was idle for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentless.controller.state.event_bus import EventBus
from agentless.controller.state.tasks import Tasks
from agentless.controller.traffic import Traffic
from agentless.ports import Clock

LEAVE_AFTER = 15 * 60.0
"""Seconds without a live task and without a request after which a controller that was started on demand leaves."""


class Lifetime:
    """Ends the process, but not by itself while `has_work`. `leaving`: shutdown has begun; open streams end."""

    def __init__(
        self, traffic: Traffic, tasks: Tasks, has_work: Callable[[], bool], bus: EventBus, clock: Clock
    ) -> None:
        self.leaving = False
        self._end: Callable[[], None] | None = None
        self._traffic = traffic
        self._tasks = tasks
        self._has_work = has_work
        self._bus = bus
        self._clock = clock

    def begin(self, end: Callable[[], None]) -> None:
        """Set how the process is ended."""
        self._end = end

    def leave_now(self) -> None:
        """End the process."""
        self.leaving = True
        self._bus.publish({"kind": "leaving"})
        if self._end is not None:
            self._end()

    async def until_leaving(self) -> None:
        """Wait until shutdown begins."""
        await self._bus.until(lambda: self.leaving)

    def leave(self) -> None:
        """End the process after the current answer is sent."""
        if self._end is not None:
            asyncio.get_running_loop().call_later(0.05, self.leave_now)

    def leave_if_idle(self) -> None:
        """End the process if the controller is idle."""
        if self.is_idle():
            self.leave()

    def is_idle(self) -> bool:
        """Whether no request, task or transfer needs the controller."""
        quiet = self._clock.now() - self._traffic.last > LEAVE_AFTER
        return quiet and not self._traffic.open and not self._tasks.live and not self._has_work()
