"""Compressed data in a stream: where it ends, and how a few bytes of our own are put between it.

Several compressed pieces one after the other are one compressed file, for zstd (frames, RFC 8878) and for gzip
(members, RFC 1952) alike. So a piece that was compressed once can go to many, to each with what it lacks.
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
"""What compresses and what unpacks."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 128 * 1024


class Piece(Protocol):
    """A piece in a stream, as it passes. `over`: its end has been seen; `unpacked`: about so many bytes are in it."""

    over: bool
    unpacked: int

    def feed(self, data: bytes) -> int:
        """Look at the next bytes of the stream; gives how many of them belong to the piece. Raises ValueError."""


def piece(packer: str | None, size: int) -> Piece:
    """A piece that was packed so; `size` is what is in it."""
    if packer is None:
        return _Plain(size)
    return _Zstd() if packer == "zstd" else _Gzip()


def pack(packer: str | None, data: bytes) -> bytes:
    """A few bytes as a piece."""
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
    """Hops from block to block: a frame says how long each is, so nothing has to be unpacked to find the end."""

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
            raise ValueError("no zstd frame")
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
    """The bytes as they are, in a frame with its length and without a checksum."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)] or [b""]
    headers = [(len(block) << 3 | (number == len(blocks))) for number, block in enumerate(blocks, 1)]
    body = b"".join(struct.pack("<I", head)[:3] + block for head, block in zip(headers, blocks, strict=True))
    return _MAGIC + b"\xa0" + struct.pack("<I", len(data)) + body
