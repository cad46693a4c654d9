"""Frames, in which logs, archives and terminals travel: a byte for the kind, four of length (big-endian), the content.

Kept logs are files of them. The kinds 1 and 2 are standard output and standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from agentless.errors import UsageError

END, DATA, NOTE, RESIZE, POSITION = 0, 1, 3, 4, 5
"""The end, with an error or an exit code where there is one; input of a program; a note for people; a new size of its
terminal; in a log, how far it was read: what came before is complete, and a log that breaks off can go on there."""
HEAD = 5
MOST = 1 << 20
"""Bytes of one frame to or from a terminal."""

Frame = tuple[int, bytes]


def frame(kind: int, data: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return bytes([kind]) + len(data).to_bytes(4, "big") + data


def parse_head(head: bytes | bytearray) -> tuple[int, int]:
    """The kind of a frame, and the length of its content."""
    return head[0], int.from_bytes(head[1:HEAD], "big")


def read_frames(file: BinaryIO) -> Iterator[Frame]:
    """The complete frames in a file, up to the first END, which is among them. A file that breaks off has none."""
    while len(head := file.read(HEAD)) == HEAD:
        kind, size = parse_head(head)
        data = file.read(size)
        if len(data) < size:
            return
        yield kind, data
        if kind == END:
            return


class FrameDecoder:
    """Takes bytes as they arrive, however they were cut, and gives the frames in them."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete by now; raises UsageError for one that is too long."""
        self._rest += data
        while len(self._rest) >= HEAD:
            kind, size = parse_head(self._rest)
            if size > MOST:
                raise UsageError(f"a frame may hold {MOST:,} bytes at most")
            if len(self._rest) < HEAD + size:
                return
            content = bytes(self._rest[HEAD : HEAD + size])
            del self._rest[: HEAD + size]
            yield kind, content
