"""The bytes of a log as lines of text: made in the thread that reads, taken in the one that shows."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from threading import Condition

from agentless.model.text import printable

Line = tuple[int, str]
"""A stream (1, 2 or 3) and a text."""

LINE = 20_000
"""Characters that are kept of a line, the last ones."""
WAITING = 2**20
"""Bytes that may wait to be shown; with more, the reader waits."""
_LINE_COST = 50
"""The bytes that each line counts in addition: many short ones take time, too."""
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|[ -/]*[0-~])"
)


class LogText:
    """Takes frames in one thread, and gives lines in another."""

    def __init__(self) -> None:
        self._decode = {stream: getincrementaldecoder("utf-8")("replace").decode for stream in (1, 2, 3)}
        self._begun = dict.fromkeys((1, 2, 3), "")
        self._lines: list[Line] = []
        self._size = 0
        self._closed = False
        self._changed = Condition()

    def add(self, stream: int, data: bytes) -> None:
        """Add a frame; waits while too much of the log has not been taken."""
        if stream == 3:
            data = printable(data.decode(errors="replace")).encode() + b"\n"  # a note is a line of its own
        *whole, rest = (self._begun[stream] + self._decode[stream](data)).split("\n")
        lines = [(stream, _settled(line)) for line in whole]
        with self._changed:
            self._changed.wait_for(lambda: self._size < WAITING or self._closed)
            self._lines += lines
            self._begun[stream] = _left(rest)
            self._size += len(data) + _LINE_COST * len(lines)

    def take(self) -> tuple[list[Line], list[Line]] | None:
        """The lines that have ended since the last time, and the unfinished ones; None if nothing came."""
        with self._changed:
            if not self._size:
                return None
            lines, self._lines, self._size = self._lines, [], 0
            begun = [(stream, _settled(text)) for stream, text in self._begun.items() if text]
            self._changed.notify()
        return lines, begun

    def close(self) -> None:
        """Let `add` wait no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()


def _left(line: str) -> str:
    """What carriage returns leave of a line, cut if it is too long."""
    line = line[line.rfind("\r", 0, len(line.rstrip("\r"))) + 1 :]
    return line if len(line) <= LINE else "…" + line[-LINE:]


def _settled(line: str) -> str:
    """The line as a terminal would show it in the end, without colours."""
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    return printable(_left(line).rstrip("\r").replace("\t", "    "))
