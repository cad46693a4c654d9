"""The time that the controller goes by."""

from __future__ import annotations

import time


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()
