"""Reads an untrusted tar stream: any bytes give members or `BadArchive`, in bounded memory and linear time.

`tarfile` recurses with chained headers, keeps every member in memory, and takes a damaged header for the end. This
module reads ustar, GNU and pax archives, including sparse files (GNU's own header, and pax versions 0.0, 0.1 and 1.0):
https://www.gnu.org/software/tar/manual/html_node/Tar-Internals.html

The parser consists of generators: each `yield` waits for the next bytes, and `b""` is the end. So the same code reads a
file, a blocking stream (`pulled`), and bytes from an event loop (`Fed`).
"""

from __future__ import annotations

import re
import tarfile
from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Kind = Literal["file", "folder", "link", "hard link", "other"]
T = TypeVar("T")
Parsing = Generator[None, bytes, T]

BLOCK = tarfile.BLOCKSIZE
CHUNK = 1 << 20
MOST_EXTENDED = 16
"""The most extended headers of a member: a long name, a long link, and a pax header."""
MOST_HEADER = 4 << 20
"""The largest extended header in bytes. Extended attributes of a file may have 64 KiB each."""
MOST_PIECES = 200_000
"""The most pieces of a sparse file."""
_LARGEST = 1 << 63
_FAR = float(1 << 40)
"""The latest time that a file system may store, in Unix seconds."""
_END = bytes(BLOCK)
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.GNUTYPE_SPARSE: "file",
    tarfile.DIRTYPE: "folder", b"D": "folder", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link",
}  # fmt: skip
_WITHOUT_CONTENT = frozenset({
    tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE
})  # fmt: skip
_SHORT = "unexpected end"
_BAD_MAP = "damaged: overlapping or unordered pieces of a sparse file"
_PAX = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE})


class BadArchive(Exception):
    """The stream is no valid tar archive. A retry would fail, too."""


class Incomplete(BadArchive):
    """The stream ended before the archive did."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file, folder or link. `size` is the size of the file with its holes."""

    name: str
    kind: Kind
    mode: int
    mtime: float
    link: str
    size: int


class Tar:
    """A stream of members: `next` returns the next one, `content` the content of the last one."""

    def __init__(self) -> None:
        self._data, self._at, self._begun = b"", 0, False
        self._left = self._padding = self._size = 0
        self._pieces: array[int] | None = None
        self._shared: dict[str, str] = {}

    def next(self) -> Parsing[Member | None]:
        """The next member. At the end, it reads the rest of the stream and returns None. Raises BadArchive."""
        yield from self._skip()
        names: dict[str, str] = {}
        pax: list[tuple[str, str]] = []
        for count in range(MOST_EXTENDED + 1):
            block = yield from self._header()
            if block is None:
                if count:
                    raise BadArchive("an extended header belongs to no member")
                return None
            info = _parsed(block)
            if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                text = yield from self._extended(info.size)
                key = "path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
                names[key] = _text(text.partition(b"\0")[0])
            elif info.type in _PAX:
                pax += _records((yield from self._extended(info.size)))
            elif info.type == tarfile.XGLTYPE:
                self._shared |= _records((yield from self._extended(info.size)))
            else:
                return (yield from self._member(block, info, {**self._shared, **names, **dict(pax)}, pax))
        raise BadArchive(f"a member has more than {MOST_EXTENDED} extended headers")

    def content(self, take: Callable[[int, bytes], None]) -> Parsing[None]:
        """Pass the content of the last member, a file, in pieces with their offsets. Between them are holes."""
        pieces = iter((0, self._size) if self._pieces is None else self._pieces)
        for offset, length in zip(pieces, pieces, strict=True):
            at, end = offset, offset + length
            while at < end:
                data = yield from self._some(min(end - at, CHUNK))
                self._left -= len(data)
                take(at, data)
                at += len(data)

    # ------------------------------------------------------------------ headers

    def _header(self) -> Parsing[bytes | None]:
        """A header block. None at the end of the archive, or for an empty stream."""
        if self._at == len(self._data):
            self._data, self._at = (yield), 0
            if not self._data:
                if self._begun:
                    raise Incomplete(_SHORT)
                return None
        self._begun = True
        block = yield from self._take(BLOCK)
        if block != _END:
            return block
        rest = self._data[self._at :] or (yield)
        while rest:
            if rest.count(0) != len(rest):
                raise BadArchive("damaged: data after the end")
            rest = yield
        return None

    def _member(
        self, block: bytes, info: tarfile.TarInfo, said: dict[str, str], pax: list[tuple[str, str]]
    ) -> Parsing[Member]:
        kind = _KINDS.get(info.type, "other")
        stored = 0 if info.type in _WITHOUT_CONTENT else _number(said["size"]) if "size" in said else info.size
        if not 0 <= stored < _LARGEST:
            raise BadArchive("a member has an invalid size")
        self._left, self._padding, self._size, self._pieces = stored, -stored % BLOCK, stored, None
        if info.type == tarfile.GNUTYPE_SPARSE:
            yield from self._gnu_map(block)
        elif kind == "file" and any(key.startswith("GNU.sparse.") for key in said):
            yield from self._pax_map(said, pax)
        mtime = _seconds(said["mtime"]) if "mtime" in said else float(info.mtime)
        mtime = mtime if abs(mtime) < _FAR else 0.0
        name = said.get("GNU.sparse.name") or said.get("path") or info.name
        link = said.get("linkpath") or info.linkname
        return Member(name, kind, info.mode, mtime, link, self._size)

    def _extended(self, size: int) -> Parsing[bytes]:
        if not 0 <= size <= MOST_HEADER:
            raise BadArchive("an extended header has an invalid size")
        data = yield from self._take(size + -size % BLOCK)
        return data[:size]

    # ------------------------------------------------------------- sparse files

    def _gnu_map(self, block: bytes) -> Parsing[None]:
        """The sparse map of GNU tar: four pieces are in the header, and 21 in each following block."""
        numbers = array("q")
        fields, more = block[386:482], block[482]
        while True:
            for at in range(0, len(fields), 12):
                if fields[at]:
                    numbers.append(_field(fields[at : at + 12]))
            if not more:
                break
            _check_count(len(numbers) // 2)
            fields = yield from self._take(BLOCK)
            fields, more = fields[:504], fields[504]
        self._place(numbers, _field(block[483:495]))

    def _pax_map(self, said: dict[str, str], pax: list[tuple[str, str]]) -> Parsing[None]:
        size = _number(said.get("GNU.sparse.realsize") or said.get("GNU.sparse.size") or "")
        if said.get("GNU.sparse.major") == "1":
            numbers = yield from self._leading_map()
        elif "GNU.sparse.map" in said:
            numbers = array("q", map(_number, said["GNU.sparse.map"].split(",")))
        else:
            values = (value for key, value in pax if key in ("GNU.sparse.offset", "GNU.sparse.numbytes"))
            numbers = array("q", map(_number, values))
        self._place(numbers, size)

    def _leading_map(self) -> Parsing[array[int]]:
        """The sparse map of pax 1.0, before the content: lines with the number of pieces, then the pieces."""
        numbers, wanted, rest = array("q"), 1, b""
        while len(numbers) < wanted:
            if self._left < BLOCK or len(rest) > BLOCK:
                raise BadArchive(_BAD_MAP)
            self._left -= BLOCK
            *lines, rest = (rest + (yield from self._take(BLOCK))).split(b"\n")
            for line in lines:
                if len(numbers) == wanted:
                    break
                numbers.append(_number(_text(line)))
                if len(numbers) == 1:
                    _check_count(numbers[0])
                    wanted = 1 + 2 * numbers[0]
        return numbers[1:]

    def _place(self, numbers: array[int], size: int) -> None:
        """Set the pieces of the content, by offset and length, in a file of this size."""
        end = total = 0
        for offset, length in zip(numbers[::2], numbers[1::2], strict=False):
            if offset < end or length < 0:
                raise BadArchive(_BAD_MAP)
            end, total = offset + length, total + length
        if len(numbers) % 2 or total != self._left or not end <= size < _LARGEST:
            raise BadArchive(_BAD_MAP)
        self._pieces, self._size = numbers, size

    # -------------------------------------------------------------------- bytes

    def _skip(self) -> Parsing[None]:
        """Skip the rest of the last member."""
        left, self._left, self._padding = self._left + self._padding, 0, 0
        while left:
            left -= len((yield from self._some(min(left, CHUNK))))

    def _take(self, size: int) -> Parsing[bytes]:
        data = bytearray()
        while len(data) < size:
            data += yield from self._some(size - len(data))
        return bytes(data)

    def _some(self, most: int) -> Parsing[bytes]:
        """Some of the next bytes, at least one byte."""
        while self._at == len(self._data):
            self._data, self._at = (yield), 0
            if not self._data:
                raise Incomplete(_SHORT)
        data = self._data[self._at : self._at + most]
        self._at += len(data)
        return data


class Fed(Generic[T]):
    """A parsing that is fed with bytes. Close it if it is abandoned before its end."""

    def __init__(self, reading: Parsing[T]) -> None:
        self._reading = reading
        self._result: list[T] = []
        next(reading)

    @property
    def ended(self) -> bool:
        """Whether the parsing needs no more bytes."""
        return bool(self._result)

    def feed(self, data: bytes) -> None:
        """Feed bytes; empty at the end."""
        if self._result:
            return
        try:
            self._reading.send(data)
        except StopIteration as end:
            self._result.append(end.value)

    def end(self) -> T:
        """End the input. Returns the result of the parsing."""
        self.feed(b"")
        return self._result[0]

    def close(self) -> None:
        """Close the generator."""
        self._reading.close()


def pulled(reading: Parsing[T], read: Callable[[int], bytes]) -> T:
    """The result of a parsing that reads from a file or a stream."""
    fed = Fed(reading)
    try:
        while data := read(CHUNK):
            fed.feed(data)
        return fed.end()
    finally:
        fed.close()


def _parsed(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        raise BadArchive("damaged: unreadable header") from None


def _records(data: bytes) -> list[tuple[str, str]]:
    """The records of a pax header: each is its length, a blank, `key=value` and a line break."""
    found, at = [], 0
    while at < len(data):
        digits = data[at : at + 20].partition(b" ")[0]
        end = at + _number(_text(digits))
        key, equals, value = data[at + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadArchive("damaged: unreadable extended header")
        found.append((_text(key), _text(value)))
        at = end
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadArchive("damaged: invalid number")
    return int(text)


def _field(data: bytes) -> int:
    """A number of a header: octal, or binary if the first bit is set."""
    if data[0] == 0x80:
        return min(int.from_bytes(data[1:], "big"), _LARGEST - 1)
    text = _text(data.partition(b"\0")[0]).strip()
    if not re.fullmatch("[0-7]+", text):
        raise BadArchive("damaged: invalid number")
    return int(text, 8)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadArchive("damaged: invalid time") from None


def _check_count(pieces: int) -> None:
    if pieces > MOST_PIECES:
        raise BadArchive(f"a file has more than {MOST_PIECES:,} pieces")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
