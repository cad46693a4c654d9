"""Time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time as an argument."""

    def now(self) -> float:
        """Unix seconds."""
