"""The clock of a simulated node: this machine's with an offset."""

from __future__ import annotations

import time


class NodeClock:
    """What its container engine dates by. `ahead` is by how many seconds it is ahead of this machine's clock.

    The programs of a node, `date` among them, are this machine's and see its clock.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> int:
        """Unix nanoseconds."""
        return time.time_ns() + round(self.ahead * 1e9)
