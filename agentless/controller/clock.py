"""The controller's clock."""

from __future__ import annotations

import time


class SystemClock:
    """The system clock."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()
