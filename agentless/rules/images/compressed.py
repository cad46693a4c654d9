"""Compressed pieces in a stream: finds where a piece ends, and makes small pieces to put between others.

For both zstd (frames, RFC 8878) and gzip (members, RFC 1952), concatenated pieces are one compressed file. So a layer
is compressed once and sent to many nodes, to each with the layers that it lacks.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Protocol

PACKERS: dict[str, tuple[list[str], list[str]]] = {
    "zstd": (["zstd", "-q", "-1", "-c"], ["zstd", "-q", "-d", "-c"]),
    "gzip": (["gzip", "-1", "-c"], ["gzip", "-d", "-c"]),
}
"""The commands that compress and decompress, by name."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 128 * 1024


class Piece(Protocol):
    """Follows a piece in a stream. `over`: its end was seen. `unpacked`: its approximate size when decompressed."""

    over: bool
    unpacked: int

    def feed(self, data: bytes) -> int:
        """Take the next bytes of the stream. Returns how many belong to the piece. Raises ValueError."""


def piece(packer: str | None, size: int) -> Piece:
    """A follower of a piece from this packer; `size` is its decompressed size."""
    if packer is None:
        return _Plain(size)
    return _Zstd() if packer == "zstd" else _Gzip()


def pack(packer: str | None, data: bytes) -> bytes:
    """Compress a few bytes to a piece."""
    if packer is None:
        return data
    return _frame(data) if packer == "zstd" else gzip.compress(data, 1, mtime=0)


class _Plain:
    def __init__(self, size: int) -> None:
        self.unpacked = 0
        self._size = size
        self.over = size == 0

    def feed(self, data: bytes) -> int:
        taken = min(len(data), self._size - self.unpacked)
        self.unpacked += taken
        self.over = self.unpacked == self._size
        return taken


class _Gzip:
    def __init__(self) -> None:
        self.over = False
        self.unpacked = 0
        self._unpacking = zlib.decompressobj(31)

    def feed(self, data: bytes) -> int:
        try:
            self.unpacked += len(self._unpacking.decompress(data))
        except zlib.error as error:
            raise ValueError(str(error)) from None
        self.over = self._unpacking.eof
        return len(data) - len(self._unpacking.unused_data)


class _Zstd:
    """Skips from block to block. A frame has the length of each block, so nothing is decompressed."""

    def __init__(self) -> None:
        self.over = False
        self.unpacked = 0
        self._head = b""
        self._wanted = 5
        self._hop = 0
        self._in_blocks = self._is_last = False

    def feed(self, data: bytes) -> int:
        at = 0
        while not self.over and at < len(data):
            if self._hop:
                step = min(self._hop, len(data) - at)
                self._hop -= step
            else:
                step = min(self._wanted - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == self._wanted:
                    self._block() if self._in_blocks else self._begin()
                    self._head, self._wanted = b"", 3
            at += step
            self.over = self._is_last and not self._hop
        return at

    def _begin(self) -> None:
        if self._head[:4] != _MAGIC:
            raise ValueError("not a zstd frame")
        flags = self._head[4]
        single = flags >> 5 & 1
        size = (single, 2, 4, 8)[flags >> 6]
        self._hop = (not single) + (0, 1, 2, 4)[flags & 3] + size
        self._check = 4 * (flags >> 2 & 1)
        self._in_blocks = True

    def _block(self) -> None:
        fields = int.from_bytes(self._head, "little")
        kind, size = fields >> 1 & 3, fields >> 3
        if kind == 3:
            raise ValueError("a broken zstd frame")
        self._is_last = bool(fields & 1)
        self._hop = (1 if kind == 1 else size) + (self._check if self._is_last else 0)
        self.unpacked += _BLOCK if kind == 2 else size


def _frame(data: bytes) -> bytes:
    """An uncompressed frame of these bytes, with its length and without a checksum."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)] or [b""]
    headers = [(len(block) << 3 | (number == len(blocks))) for number, block in enumerate(blocks, 1)]
    body = b"".join(struct.pack("<I", head)[:3] + block for head, block in zip(headers, blocks, strict=True))
    return _MAGIC + b"\xa0" + struct.pack("<I", len(data)) + body
