"""How long to sleep between two looks at something that nobody tells of."""

from __future__ import annotations

from collections.abc import Iterator


def pauses() -> Iterator[float]:
    """Seconds, without an end: first short ones, since most waits are; then longer ones, since each look costs time."""
    pause = 0.005
    while True:
        yield pause
        pause = min(0.2, pause * 1.3)
