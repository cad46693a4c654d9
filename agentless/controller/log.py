"""The log of the controller: for people, and about what nodes say."""

from __future__ import annotations

import logging
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from agentless.model.text import printable, printable_lines
from agentless.stores import private


class Lines(logging.Formatter):
    """A line for each message, whatever is in it; a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The message in its line."""
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """The message, and a traceback below it."""
        return printable_lines(super().format(record))


class LogFile(RotatingFileHandler):
    """A file of such lines that nobody else may read, and the one before it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=1_000_000, backupCount=1, delay=True)
        self.setFormatter(Lines("%(asctime)s %(levelname)s %(message)s"))

    def _open(self) -> TextIOWrapper:
        private.make(Path(self.baseFilename))
        return super()._open()
