"""Lines of kept logs, read where they are: no log is read as a whole but once, to index it."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import BinaryIO, Self

from agentless.errors import StateError
from agentless.formats.frames import END, HEAD, NOTE, parse_head
from agentless.formats.log_index import Found, LogIndex, LogLine, Matches, Part
from agentless.stores import private
from agentless.stores.files.logs import LogStore

_INDEXES = 4
"""Indexes that are kept in memory, the last ones used. One has a few MB for each GB of its log."""

_Version = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class LogPages:
    """One kept log. All methods read the disk, and may run in a thread."""

    index: LogIndex
    size: int
    is_cut: bool
    _file: BinaryIO

    def lines(self, part: Part) -> tuple[int, list[LogLine]]:
        """The number of the first line, and the lines."""
        return self.index.lines(self._read, part)

    def find(self, words: str, first: int, *, back: bool, only: int | None) -> Found:
        """The first line from this one on that shows these words."""
        return self.index.find(self._read, words, first, back=back, only=only)

    def matches(self, words: str, first: int, *, only: int | None) -> Matches:
        """All lines from this one on that show these words."""
        return self.index.matches(self._read, words, first, only=only)

    def _read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class LogIndexes:
    """Opens kept logs for reading by lines."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._known = OrderedDict[_Version, tuple[LogIndex, bool]]()
        self._making = Lock()

    def open(self, task: str) -> LogPages:
        """The kept log of a task. Raises StateError for a damaged file, or without one."""
        file = self._logs.open(task)
        try:
            with private.explained(f"cannot read the log of task {task}"):
                status = os.fstat(file.fileno())
                version = (task, status.st_ino, status.st_mtime_ns, status.st_size)
                with self._making:
                    if version not in self._known:
                        self._known[version] = self._index(file, task)
                    self._known.move_to_end(version)
                    while len(self._known) > _INDEXES:
                        self._known.popitem(last=False)
                    index, is_cut = self._known[version]
        except BaseException:
            file.close()
            raise
        return LogPages(index, status.st_size, is_cut, file)

    def _index(self, file: BinaryIO, task: str) -> tuple[LogIndex, bool]:
        index, is_cut = LogIndex(), False
        while len(head := file.read(HEAD)) == HEAD:
            kind, size = parse_head(head)
            if kind == END:
                return index, is_cut
            is_cut |= kind == NOTE
            data = file.read(size)
            if len(data) < size:
                break
            index.add(kind, HEAD + size, data)
        raise StateError(f"the kept log of task {task} is damaged; to remove it, run: agentless rm {task}")
