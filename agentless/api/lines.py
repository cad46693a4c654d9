"""The frames of a log, as lines."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator

from agentless.model.text import printable

_log = logging.getLogger("agentless")


def lines(frames: Iterable[tuple[int, bytes]], streams: Collection[int]) -> Iterator[str]:
    """The lines of these streams (1 stdout, 2 stderr), each once it is complete. A note (3) goes to Python's log."""
    rest = {1: b"", 2: b""}
    for stream, data in frames:
        if stream == 3:
            _log.warning("%s", printable(data.decode("utf-8", "replace")))
        elif stream in streams:
            *whole, rest[stream] = (rest[stream] + data).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
    for line in filter(None, rest.values()):
        yield line.decode("utf-8", "replace")
