"""Whether the state folder is still this controller's."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger(__name__)

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Which file a path leads to; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class Ownership:
    """The lock that this process holds, compared with the file of that name.

    If somebody has removed or replaced it, another controller may have the folder, and start the same tasks.
    """

    def __init__(self, lock: Path, end: Callable[[int], object] = os._exit) -> None:
        self._lock = lock
        self._held = identity(lock)
        self._end = end

    def check(self) -> None:
        """End the process if the lock is another file by now: at once, as nothing more may be written or started."""
        try:
            is_lost = self._held is not None and identity(self._lock) != self._held
        except OSError:  # a file system that does not answer is no proof
            return
        if is_lost:
            _log.critical(
                "%s was removed or replaced, so another controller may use this state folder; this one has ended, and "
                "tasks keep running",
                self._lock,
            )
            self._end(1)
