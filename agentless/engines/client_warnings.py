"""Warnings that the engine's command, or sudo before it, prints at every call: they are no output of a task."""

from __future__ import annotations

from collections.abc import Iterable

from agentless.model.containers.log_query import LogPosition
from agentless.ports import Reading

MOST = 5
"""Lines of warnings that are recognised."""
LENGTH = 500
"""Characters of the longest one."""


def warnings_before(answer: str, lines: Iterable[str]) -> tuple[str, ...]:
    """The lines of a command's output before its answer."""
    found: list[str] = []
    for line in lines:
        if line == answer or len(found) == MOST:
            break
        if line.strip() and len(line) <= LENGTH:
            found.append(line)
    return tuple(found)


class AsItIs:
    """A reading that passes everything on unchanged."""

    place = None

    def __call__(self, fd: int, data: bytes) -> Iterable[tuple[int, bytes]]:
        """The same data."""
        return ((fd, data),)


class WithoutWarnings:
    """A reading that drops these lines at the beginning of standard error."""

    def __init__(self, reading: Reading, warnings: Iterable[str]) -> None:
        self._reading = reading
        self._warnings = [warning.encode("utf-8", "surrogateescape") for warning in warnings]
        self._held = b""

    @property
    def place(self) -> LogPosition | None:
        """The place of the wrapped reading."""
        return self._reading.place

    def __call__(self, fd: int, data: bytes) -> Iterable[tuple[int, bytes]]:
        """The next output without the warnings."""
        if fd != 2 or not self._warnings:
            return self._reading(fd, data)
        self._held += data
        while b"\n" in self._held and (line := self._held.partition(b"\n")[0].rstrip(b"\r")) in self._warnings:
            self._warnings.remove(line)
            self._held = self._held.partition(b"\n")[2]
        if any(warning.startswith(self._held.rstrip(b"\r")) for warning in self._warnings):
            return ()
        self._warnings.clear()
        data, self._held = self._held, b""
        return self._reading(2, data) if data else ()
