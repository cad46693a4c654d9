"""A terminal: its size, and the frames in which what goes through it travels.

A frame is one byte for its kind, four bytes of length, big-endian, and that many bytes: as the logs are sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from agentless.errors import UsageError

END, DATA, RESIZE = 0, 1, 4
"""To the program: the end of its input, input, a new size. From it the kinds are those of a log."""
POSITION = 5
"""In a log: how far it was read. What came before is complete, and a log that breaks off can go on there."""
FRAME = 1 << 20
"""Bytes that a frame may hold."""

_SIZE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class Size:
    """Columns and rows of characters, 1 to 9999; written `80x24`."""

    columns: int
    rows: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The size that is written so; raises UsageError."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise UsageError(f"{text[:80]!r} is no size of a terminal; write it as COLUMNSxROWS, like 80x24")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.columns}x{self.rows}"


def frame(kind: int, data: bytes = b"") -> bytes:
    """One frame."""
    return bytes([kind]) + len(data).to_bytes(4, "big") + data


class Frames:
    """Takes bytes as they arrive, however they were cut, and gives the frames in them."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The kinds and contents of the frames that are whole by now; raises UsageError for one that is too long."""
        self._rest += data
        while len(self._rest) >= 5:
            end = 5 + int.from_bytes(self._rest[1:5], "big")
            if end > 5 + FRAME:
                raise UsageError(f"a frame may hold {FRAME:,} bytes at most")
            if len(self._rest) < end:
                return
            whole = bytes(self._rest[:end])
            del self._rest[:end]
            yield whole[0], whole[5:]
