"""A terminal that can be looked at: a session of tmux with a server of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.pauses import pauses

WITHIN = 30
"""Seconds after which something that should be on the screen counts as not coming."""


class Tmux:
    """A shell in a window of so many columns and rows, for the time of a `with`."""

    def __init__(self, folder: Path, env: Mapping[str, str], columns: int = 110, rows: int = 36) -> None:
        self._socket = str(folder / "tmux")
        self._env = {**os.environ, **env, "TERM": "xterm-256color"}
        self._size = (str(columns), str(rows))

    def __enter__(self) -> Self:
        columns, rows = self._size
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "sh")
        self.press("PS1='ready''$ '; clear", "Enter")
        self.see("ready$")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server", check=False)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p")

    @property
    def painted(self) -> str:
        """The same, with its colours."""
        return self._tmux("capture-pane", "-e", "-p")

    def run(self, *argv: str) -> None:
        """Type a command."""
        self.press(shlex.join(argv), "Enter")

    def agentless(self, *argv: str) -> None:
        """Type a command of agentless's."""
        self.run(sys.executable, "-m", "agentless", *argv)

    def press(self, *keys: str) -> None:
        """Type texts, or keys by tmux's names."""
        for key in keys:
            named = key in ("Enter", "Escape", "Tab", "Up", "Down") or key.startswith("C-")
            self._tmux("send-keys", *([] if named else ["-l"]), key)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def see(self, *words: str) -> None:
        """Wait until all of these are on the screen."""
        until, pause = time.monotonic() + WITHIN, pauses()
        while missing := [word for word in words if word not in self.text]:
            assert time.monotonic() < until, f"{missing} is not to be seen in:\n{self.text}"
            time.sleep(next(pause))

    def _tmux(self, *words: str, check: bool = True) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, env=self._env, check=check, capture_output=True, text=True, timeout=30).stdout
