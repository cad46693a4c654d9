"""The lines of a log by number, found in its frames without holding more than a piece of it.

Lines are counted from 0, those of both streams in the order of their ends; what has not ended comes last. The index
has a few numbers for each block of frames, so that of any line only its block is read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from agentless.formats.frames import HEAD, NOTE, Frame, parse_head
from agentless.model.terminal_line import is_crowded, pattern, plain

Read = Callable[[int, int], bytes]
"""Reads so many bytes at a place of the frames."""
LogLine = tuple[int, bytes]
"""A stream (1, 2 or NOTE) and the bytes of a line, without its end."""

BLOCK = 1 << 16
"""The least bytes of a block. It ends with a frame."""
LINE = 1 << 20
"""Bytes of a line that are read, the last ones."""
STEP = 64 << 20
"""Bytes that a search looks through before it says how far it is."""
MATCHES = 10_000
"""Lines that match, after which a search for all of them says how far it is."""
_SHORT = 4096
"""Bytes of a line that goes on in the next block, up to which the index holds them."""
_LONG = bytes(_SHORT + 1)
"""Instead of a longer line. It is one and the same, since there may be one in each block."""
_GONE = (b"", b"")
_BACK = 64
"""Blocks in which the beginning of a longer line is looked for."""
_ALL = 0
_STREAMS = (1, 2)


@dataclass(frozen=True, slots=True)
class Span:
    """The lines that there are: from `first` up to `end`, those from `ended` on without an end of line."""

    first: int
    ended: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """A line that matches; or None, and where to go on, which is None where all was searched."""

    line: int | None
    go_on: int | None


@dataclass(frozen=True, slots=True)
class Matches:
    """The lines that match; and where to go on, which is None where all was searched."""

    lines: tuple[int, ...]
    go_on: int | None


@dataclass(frozen=True, slots=True)
class Part:
    """Which lines are wanted: `count` of them from `first` on, or with `back` those before it.

    `only` is one stream. Of each line `cut` bytes, and in all no more than some `limit`, but at least one line.
    """

    first: int
    count: int
    only: int | None = None
    back: bool = False
    cut: int = LINE
    limit: int = LINE


class LogIndex:
    """Where the lines of a log are. `add` its frames in order; `forget` those that are gone from the beginning."""

    def __init__(self) -> None:
        self.end = 0
        self._starts = array("Q")
        self._before = {key: array("Q") for key in (_ALL, *_STREAMS)}  # lines that ended before each block
        self._ended = dict.fromkeys((_ALL, *_STREAMS), 0)
        self._begun = dict.fromkeys(_STREAMS, b"")
        self._carried: list[tuple[bytes, bytes]] = []  # what each stream had begun before each block
        self._first = 0  # the first block that can still be read

    def add(self, kind: int, size: int, data: bytes) -> None:
        """Add the frame that comes next: its `size` in all, and its content."""
        if not self._starts or self.end - self._starts[-1] >= BLOCK:
            self._starts.append(self.end)
            self._carried.append((self._begun[1], self._begun[2]))
            for key, counts in self._before.items():
                counts.append(self._ended[key])
        self.end += size
        if kind == NOTE:
            self._ended[_ALL] += 1
        elif kind in _STREAMS:
            count = len(data) - len(data.replace(b"\n", b""))  # a third of the time of `count`
            self._ended[kind] += count
            self._ended[_ALL] += count
            begun = data[data.rfind(b"\n") + 1 :] if count else self._begun[kind] + data[: _SHORT + 1]
            self._begun[kind] = begun if len(begun) <= _SHORT else _LONG

    def forget(self, before: int) -> None:
        """The bytes before this place are gone."""
        while self._first < len(self._starts) - 1 and self._starts[self._first] < before:
            self._carried[self._first] = _GONE
            self._first += 1

    def span(self, only: int | None = None) -> Span:
        """The lines of a stream, or of both."""
        ended = self._ended[only or _ALL]
        begun = sum(bool(self._begun[stream]) for stream in _wanted(only))
        return Span(self._before[only or _ALL][self._first] if self._starts else 0, ended, ended + begun)

    def lines(self, read: Read, part: Part) -> tuple[int, list[LogLine]]:
        """The number of the first line that was found, and the lines from there on."""
        span = self.span(part.only)
        begin = max(part.first - part.count if part.back else part.first, span.first)
        end = min(part.first if part.back else begin + part.count, span.end)
        numbered = self._backward(read, end, part.only) if part.back else self._forward(read, begin, part.only)
        found: list[LogLine] = []
        size = 0
        for _, (stream, line) in islice(numbered, max(0, end - begin)):
            text = _cut(line, part.cut)
            size += len(text)
            if found and size > part.limit:
                break
            found.append((stream, text))
        return (end - len(found), found[::-1]) if part.back else (begin, found)

    def find(
        self, read: Read, words: str, first: int, *, back: bool, only: int | None = None, step: int = STEP
    ) -> Found:
        """The first line from this one on, or the last one up to it, that shows these words in upper or lower case.

        It looks through some `step` bytes at most.
        """
        span = self.span(only)
        first = min(max(first, span.first), span.end - 1)
        sought = _Sought(words)
        blocks = range(len(self._starts))
        at = self._block_of(first, only)
        searched = 0
        for block in reversed(blocks[self._first : at + 1]) if back else blocks[at:]:
            if searched >= step:
                edge = self._before[only or _ALL]
                go_on = edge[block + 1] - 1 if back else edge[block]
                return Found(None, go_on if span.first <= go_on < span.end else None)
            searched += BLOCK
            if sought.may_be_in(self._texts(read, block, only)):
                searched += 8 * BLOCK  # line by line it takes longer
                lines = list(self._numbered(read, block, only))
                for number, (_, line) in reversed(lines) if back else lines:
                    if (number <= first if back else number >= first) and sought.is_in(line):
                        return Found(number, None)
        return Found(None, None)

    def matches(self, read: Read, words: str, first: int, *, only: int | None = None, step: int = STEP) -> Matches:
        """All lines from this one on that show these words. It looks through some `step` bytes at most."""
        span, sought = self.span(only), _Sought(words)
        found: list[int] = []
        searched = 0
        first = max(first, span.first)
        for block in range(self._block_of(first, only), len(self._starts)) if first < span.end else ():
            if searched >= step or len(found) >= MATCHES:
                return Matches(tuple(found), self._before[only or _ALL][block])
            searched += BLOCK
            if sought.may_be_in(self._texts(read, block, only)):
                searched += 8 * BLOCK
                lines = self._numbered(read, block, only)
                found += [number for number, (_, line) in lines if number >= first and sought.is_in(line)]
        return Matches(tuple(found), None)

    # ------------------------------------------------------------------ inside

    def _block_of(self, line: int, only: int | None) -> int:
        return max(self._first, bisect_right(self._before[only or _ALL], line) - 1)

    def _forward(self, read: Read, first: int, only: int | None) -> Iterator[tuple[int, LogLine]]:
        for block in range(self._block_of(first, only), len(self._starts)):
            yield from (each for each in self._numbered(read, block, only) if each[0] >= first)

    def _backward(self, read: Read, end: int, only: int | None) -> Iterator[tuple[int, LogLine]]:
        for block in range(self._block_of(end - 1, only) if self._starts else -1, self._first - 1, -1):
            lines = [each for each in self._numbered(read, block, only) if each[0] < end]
            yield from reversed(lines)

    def _numbered(self, read: Read, block: int, only: int | None) -> Iterator[tuple[int, LogLine]]:
        """The lines that end in a block; in the last one also those that have not ended."""
        number = self._before[only or _ALL][block]
        rest: dict[int, list[bytes]] = {stream: [self._carry(read, block, stream)] for stream in _wanted(only)}
        for stream, data in self._frames(read, block):
            if stream in rest:
                head, *lines = data.split(b"\n")
                rest[stream].append(head)
                for line in lines:
                    yield number, (stream, b"".join(rest[stream])[-LINE:])
                    rest[stream] = [line]
                    number += 1
            elif stream == NOTE and only is None:
                yield number, (stream, data)
                number += 1
        if block == len(self._starts) - 1:
            for stream, parts in rest.items():
                if self._begun[stream]:
                    yield number, (stream, b"".join(parts)[-LINE:])
                    number += 1

    def _texts(self, read: Read, block: int, only: int | None) -> Iterator[bytes]:
        """What each stream has in a block with an end of a line, from the beginning of its first line on."""
        texts: dict[int, list[bytes]] = {}
        is_last = block == len(self._starts) - 1
        for stream, data in self._frames(read, block):
            texts.setdefault(stream, []).append(data)
        for stream in _wanted(only):
            text = b"".join(texts.get(stream, ()))
            if is_last or b"\n" in text:  # a line that goes on is searched where it ends
                yield self._carry(read, block, stream) + text
        if only is None and NOTE in texts:
            yield b"\n".join(texts[NOTE])

    def _frames(self, read: Read, block: int) -> Iterable[Frame]:
        start = self._starts[block]
        data = read(start, (self._starts[block + 1] if block + 1 < len(self._starts) else self.end) - start)
        at = 0
        while at + HEAD <= len(data):
            kind, size = parse_head(data[at : at + HEAD])
            yield kind, data[at + HEAD : at + HEAD + size]
            at += HEAD + size

    def _carry(self, read: Read, block: int, stream: int) -> bytes:
        """What a stream had begun before a block."""
        carried = self._carried[block][stream - 1]
        if len(carried) <= _SHORT:
            return carried
        parts: list[bytes] = []
        size = 0
        for before in range(block - 1, max(self._first, block - _BACK) - 1, -1):
            data = b"".join(data for kind, data in self._frames(read, before) if kind == stream)
            cut = data.rfind(b"\n") + 1
            parts.append(data[cut:])
            size += len(data)
            short = self._carried[before][stream - 1]
            if not cut and len(short) <= _SHORT:
                parts.append(short)
                break
            if cut or size >= LINE:
                break
        return b"".join(reversed(parts))[-LINE:]


class _Sought:
    """Words that are sought. Bytes are compared first, since most blocks have nothing like them."""

    def __init__(self, words: str) -> None:
        self._words = words.lower()
        lower = self._words.encode()
        self._bytes = {lower, words.encode().lower(), words.upper().encode().lower()}
        self._patterns = [pattern(each) for each in self._bytes]

    def may_be_in(self, texts: Iterable[bytes]) -> bool:
        """Whether these bytes may have a line that shows the words."""
        return any(self._may_be_in(text.lower()) for text in texts)

    def _may_be_in(self, text: bytes) -> bool:
        if any(each in text for each in self._bytes):
            return True
        return b"\x1b" in text and (any(each.search(text) for each in self._patterns) or is_crowded(text))

    def is_in(self, line: bytes) -> bool:
        """Whether a line shows the words."""
        text = line.decode(errors="replace")
        if self._words not in text.lower() and "\x1b" not in text:
            return False
        return self._words in plain(text).lower()


def _wanted(only: int | None) -> tuple[int, ...]:
    return (only,) if only else _STREAMS


def _cut(line: bytes, most: int) -> bytes:
    """The beginning of a line; of one that is written over, the end."""
    if len(line) <= most:
        return line
    at = line.find(b"\r", len(line) - most, len(line) - 1) + 1
    return line[at:] if at else line[:most]
