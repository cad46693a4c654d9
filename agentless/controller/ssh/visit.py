"""A login, as two events: when it begins, with what is asked for first, and when it ends, with all that was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agentless.model.units import format_duration

IDLE = 2.0
"""Seconds after which a login begins that asks for nothing, such as `ssh -N -L` before its port is used."""
_NOTHING = "connection"


class Visit:
    """Tells of one connection. What it asks for is a shell, a command, files, ports or the agent."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._kinds: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._waiting: asyncio.TimerHandle | None = None
        self._opened = False

    def begin(self) -> None:
        """The user has logged in."""
        self._waiting = self._loop.call_later(IDLE, self._open)

    def asks(self, kind: str) -> None:
        """It asks for something of this kind."""
        if kind not in self._kinds:
            self._kinds.append(kind)
        self._open()

    def close(self) -> None:
        """It has ended."""
        if self._waiting:
            self._waiting.cancel()
            self._open()
            self._tell("ssh-closed", f"{self._words()}; {format_duration(self._loop.time() - self._begun)}")

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._tell("ssh-opened", self._words())

    def _words(self) -> str:
        return ", ".join(self._kinds) or _NOTHING
