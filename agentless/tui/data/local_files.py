"""Files of this machine that a person names: a file system that does not answer, such as NFS, must not stop the screen.

A call that hangs cannot be ended. Its thread stays until the file system answers, and does not keep the program alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from agentless.errors import UsageError

Found = TypeVar("Found")

PATIENCE = 0.5
"""Seconds until a file counts as not answering; while another one hangs, a tenth of that."""
MOST = 16
"""The most calls that hang at the same time; then no file is looked at."""

_hung: list[threading.Thread] = []


class NoAnswer(UsageError):
    """The file system of a file does not answer."""


def in_time(path: str, work: Callable[[], Found]) -> Found:
    """What `work` returns or raises, done in another thread; raises NoAnswer if it takes too long."""
    _hung[:] = [thread for thread in _hung if thread.is_alive()]
    words = f"{path}: its file system does not answer; check its mount, or choose another file"
    if len(_hung) >= MOST:
        raise NoAnswer(words)
    found, errors = list[Found](), list[Exception]()

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE / 10 if _hung else PATIENCE)
    if errors:
        raise errors[0]
    if not found:
        _hung.append(thread)
        raise NoAnswer(words)
    return found[0]
