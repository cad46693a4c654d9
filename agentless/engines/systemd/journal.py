"""Reads `journalctl --output=json` as the two streams of a task.

An entry is a line: an object with PRIORITY (6: standard output, 3: standard error, as systemd-cat was told), MESSAGE (a
text, a list of bytes where it is no UTF-8) and __REALTIME_TIMESTAMP (microseconds). The format is described in
https://systemd.io/JOURNAL_EXPORT_FORMATS. The journal keeps lines: one without an end has one here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import orjson

from agentless.errors import TooMuch

_ENTRY = 4 << 20
"""Bytes of an entry: 48 KiB of a line are one (LineMax in journald.conf), each a number of up to 4 characters."""
_STDERR = "3"


class JournalReading:
    """Reads the journal's entries: call it with each piece of output and the stream on which it came."""

    place = None

    def __init__(self, *, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._rest = b""

    def __call__(self, fd: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The task's own output, as (1 or 2, whole lines). The script's own messages are left out."""
        if fd != 1:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _ENTRY:
            raise TooMuch(f"a journal entry is larger than {_ENTRY >> 20} MiB; check journalctl on the node")
        at, found = 1, list[bytes]()
        for line in lines:
            entry = _entry(line)
            if entry is None:
                continue
            stream = 2 if entry.get("PRIORITY") == _STDERR else 1
            if stream != at and found:
                yield at, b"".join(found)
                found = []
            at = stream
            found.append(self._line(entry))
        if found:
            yield at, b"".join(found)

    def _line(self, entry: dict[str, object]) -> bytes:
        message = entry.get("MESSAGE")
        words = bytes(message) if isinstance(message, list) else str(message or "").encode()
        if self._timestamps:
            return f"{_rfc3339(entry.get('__REALTIME_TIMESTAMP'))} ".encode() + words + b"\n"
        return words + b"\n"


def _entry(line: bytes) -> dict[str, object] | None:
    if not line.startswith(b"{"):
        return None  # a cursor, or that there is nothing
    try:
        entry: dict[str, object] = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return entry


def _rfc3339(microseconds: object) -> str:
    seconds, rest = divmod(int(str(microseconds or 0)), 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}000Z"
