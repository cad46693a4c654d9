"""The lock under which a node launches, held by somebody else."""

from __future__ import annotations

import fcntl
import os
from typing import Self


class HeldLock:
    """Another launch is under way: no launch on any node of the lab, which share `/`, gets on meanwhile."""

    def __enter__(self) -> Self:
        self._file = os.open("/", os.O_RDONLY)
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def take(self) -> None:
        """Wait for it, without turns as the launches do, so that it is had before theirs."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Let one of them on."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
