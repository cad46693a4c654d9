"""Python imports this at its start when the folder is on PYTHONPATH; it kills a controller before its N-th step.

A step is whatever leaves the process or comes into it: on the `disk` a change of a file or a statement to SQLite, on
the `net` bytes to or from a node or a client. Which of both is counted from now on, and up to what number, stands in
the file $AGENTLESS_FAULTS_STEP when there is one, which is then removed. What the last step would have been is left
in `<file>.at`.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

_open, _read, _unlink, _write = os.open, os.read, os.unlink, os.write


class _Countdown:
    def __init__(self, file: str) -> None:
        self._file = file
        self._kind = ""
        self._left = 0

    def step(self, kind: str, name: str, words: tuple[Any, ...]) -> None:
        if not self._kind:
            try:
                handle = _open(self._file, os.O_RDONLY)
            except FileNotFoundError:
                return
            self._kind, number = _read(handle, 100).decode().split()
            self._left = int(number)
            os.close(handle)
            _unlink(self._file)
        if kind != self._kind:
            return
        self._left -= 1
        if self._left == 0:
            _write(_open(f"{self._file}.at", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), f"{name} {words}"[:300].encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, kind: str, owner: Any, *names: str) -> None:
        """Count every call of these."""
        for name in names:
            setattr(owner, name, self._counted(kind, name, getattr(owner, name)))

    def _counted(self, kind: str, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            self.step(kind, name, words)
            return real(*words, **more)

        return call


def _install(file: str) -> None:
    count = _Countdown(file)
    count.before("disk", os, "open", "fsync", "link", "replace", "unlink")
    count.before("net", socket.socket, "send", "recv")

    class Connection(sqlite3.Connection):
        """The type of a connection is not to be changed, a subclass is."""

    count.before("disk", Connection, "execute", "executemany", "executescript", "commit", "__exit__")
    connect = sqlite3.connect
    sqlite3.connect = lambda *words, **more: connect(*words, factory=Connection, **more)


if "agentless.controller" in sys.orig_argv and "AGENTLESS_FAULTS_STEP" in os.environ:
    _install(os.environ["AGENTLESS_FAULTS_STEP"])
