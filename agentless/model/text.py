"""Text from nodes and other users, made safe for a screen.

This concerns names, owners, reasons, and messages of engines and drivers. They cannot contain control characters, nor
begin a line that looks like one of agentless. Only the output of a task is shown unchanged.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

_END = 2000
"""Bytes that are kept of each end of an error message."""


def printable(text: str) -> str:
    """The text in one line: tabs and line breaks become blanks, other invisible characters become �.

    Invisible are control characters (C0, DEL and C1) and marks that change the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def shell_word(text: str) -> str:
    """The text as one word of a POSIX shell, in one line, whatever is in it."""
    return shlex.quote(printable(text))


def program_of(words: str) -> str:
    """The file name of the program that a command line begins with: `Xorg` of `/usr/lib/xorg/Xorg :0`."""
    return words.partition(" ")[0].rpartition("/")[2]


def shown(name: str) -> str:
    """A file name or path for a message. It is quoted and escaped if it has invisible characters."""
    return name if name.isprintable() else repr(name)


def printable_lines(text: str) -> str:
    """The same for a text whose line breaks are kept, like a script."""
    return "\n".join(map(printable, text.split("\n")))


def lines_of(text: str) -> list[str]:
    """The lines of a message. All but the first are indented."""
    first, *others = (printable(line).strip() for line in text.strip().split("\n"))
    return [first, *(f"  {line}" for line in others)]


def cut(text: str, length: int) -> str:
    """The text, cut to so many characters with … at the end."""
    return text if len(text) <= length else text[: length - 1] + "…"


class Excerpt:
    """The first and the last bytes of an output, without the middle of a long one. As a string it is decoded.

    A program that crashes prints the cause first; one that gives up prints it last.
    """

    def __init__(self, first: int = _END, last: int = _END) -> None:
        self._first, self._last, self._data = first, last, b""

    def add(self, data: bytes) -> None:
        """Add output."""
        self._data += data
        if len(self._data) > self._first + self._last:
            self._data = self._data[: self._first] + self._data[-self._last :]

    def __bytes__(self) -> bytes:
        return self._data

    def __str__(self) -> str:
        return self._data.decode("utf-8", "replace")


def enumerated(words: Iterable[str], word: str = "and") -> str:
    """`a, b and c`; empty if there are none."""
    *others, last = tuple(words) or ("",)
    return f"{', '.join(others)} {word} {last}" if others else last


def last_words(data: bytes, length: int = 300) -> str:
    """The end of an output, in one line, with … if it was cut."""
    text = " ".join(printable(data.decode("utf-8", "replace")).split())
    return text if len(text) <= length else "…" + text[-length + 1 :]
