"""What a controller has written down of exceptions: nothing that breaks may bring it to one that nobody foresaw."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

UNFORESEEN = ("Traceback", "never retrieved", "unexpected error")
_ENTRY = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} )", re.MULTILINE)


class ControllerLog:
    """The log of the controllers that serve one state folder, which may be deleted and made again."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._told: set[str] = set()

    @property
    def text(self) -> str:
        """All of it, empty when there is none."""
        text = ""
        for name in ("controller.log.1", "controller.log"):
            with contextlib.suppress(FileNotFoundError):
                text += (self._state / name).read_text(errors="replace")
        return text

    def unforeseen(self) -> list[str]:
        """The entries with an exception that were not given before."""
        entries = _ENTRY.split(self.text)
        found = [entry for entry in entries if any(word in entry for word in UNFORESEEN) and entry not in self._told]
        self._told.update(found)
        return found
