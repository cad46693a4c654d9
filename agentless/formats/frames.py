"""Frames of logs, archives and terminals: a byte for the kind, four for the length (big-endian), the content.

Stored logs are files of frames. The kinds 1 and 2 are standard output and standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from agentless.errors import UsageError

END, DATA, NOTE, RESIZE, POSITION = 0, 1, 3, 4, 5
"""END: the end, with an error or an exit code if any. DATA: input of a program. NOTE: a note for people. RESIZE: a new
size of the terminal. POSITION: a cursor of a log, at which reading can resume."""
HEAD = 5
MOST = 1 << 20
"""The most bytes of one frame to or from a terminal."""

Frame = tuple[int, bytes]


def frame(kind: int, data: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return bytes([kind]) + len(data).to_bytes(4, "big") + data


def parse_head(head: bytes | bytearray) -> tuple[int, int]:
    """The kind of a frame, and the length of its content."""
    return head[0], int.from_bytes(head[1:HEAD], "big")


def read_frames(file: BinaryIO) -> Iterator[Frame]:
    """The frames of a file, up to and including the first END. A truncated file has no END."""
    while len(head := file.read(HEAD)) == HEAD:
        kind, size = parse_head(head)
        data = file.read(size)
        if len(data) < size:
            return
        yield kind, data
        if kind == END:
            return


class FrameDecoder:
    """Decodes frames from bytes in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes. Returns the frames that are complete. Raises UsageError if one is too long."""
        self._rest += data
        while len(self._rest) >= HEAD:
            kind, size = parse_head(self._rest)
            if size > MOST:
                raise UsageError(f"a frame may have at most {MOST:,} bytes")
            if len(self._rest) < HEAD + size:
                return
            content = bytes(self._rest[HEAD : HEAD + size])
            del self._rest[: HEAD + size]
            yield kind, content
