"""The logs of ended tasks: one file each, which outlives the container.

A file is a sequence of frames, as in the API: both streams, a NOTE where the log was cut, and the END. An empty file
stands for a log that was removed for the disk budget.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, groupby
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO, Literal, Self
from urllib.parse import quote

from agentless.errors import StateError
from agentless.formats.frames import END, HEAD, NOTE, Frame, frame, parse_head, read_frames
from agentless.stores import private

_SUFFIX, _UNFINISHED = ".log", ".new"
_BLOCK = 4096
"""The smallest disk space of a file, in bytes."""
_PIECE = 16384
"""The longest line in bytes. Docker counts a longer one as several."""


class LogStore:
    """Logs by task id, in a private folder. `in` says whether a log was stored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used: int | None = None  # bytes on disk, once they have been counted
        self._seen = set[str]()  # tasks whose log is known to be stored
        self._shrinking = Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for entry in os.scandir(folder):
                if entry.name.endswith(_UNFINISHED):
                    os.unlink(entry.path)
        except OSError as error:
            raise StateError(f"cannot use the folder {folder}: {error.strerror}") from None

    def __contains__(self, task: object) -> bool:
        """Whether a log was stored. Known files are cached: each event of a node asks for all its ended tasks."""
        name = str(task)
        try:
            if name not in self._seen and self._path(name).exists():
                self._seen.add(name)
        except OSError:  # an id from a label that is too long for a file name
            return False
        return name in self._seen

    def writer(self, task: str, cap: int) -> LogWriter:
        """Write a new log of this task, of which `cap` bytes are kept."""
        return LogWriter(self._path(task), cap, lambda size: self._count(_on_disk(size)))

    def remove(self, task: str) -> None:
        """Remove the log of a task, as if it had never been stored."""
        self._seen.discard(task)
        with _explained(self._path(task)), contextlib.suppress(FileNotFoundError):
            size = self._path(task).stat().st_size
            self._path(task).unlink()
            self._count(-_on_disk(size))

    def shrink(self, budget: int) -> None:
        """If all logs take more than `budget` bytes on disk, remove the oldest until a tenth of it is free.

        The newest log always stays. This reads the size of every log, but only seldom. May run in a thread.
        """
        with self._shrinking, _explained(self._folder):
            if self._used is not None and self._used <= budget:
                return
            found = sorted(_dated(self._folder))
            used = sum(size for _, size, _ in found)
            enough = budget if used <= budget else budget - budget // 10
            for _, size, path in found[:-1]:
                if used <= enough:
                    break
                # The file is replaced, so that an open reader still reads the old one.
                empty = path.with_suffix(_UNFINISHED)
                empty.touch(mode=0o600)
                os.replace(empty, path)
                used -= size
            self._used = used

    def state(self, task: str) -> Literal["whole", "cut", "given up"] | None:
        """How much of a log is stored. None if it never was. Raises StateError for a damaged file."""
        with _explained(self._path(task)), contextlib.suppress(FileNotFoundError):
            with self._path(task).open("rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    return "given up"
                while len(head := file.read(HEAD)) == HEAD:
                    kind, size = parse_head(head)
                    if kind in (NOTE, END):
                        return "cut" if kind == NOTE else "whole"
                    file.seek(size, os.SEEK_CUR)
            raise self._damaged(task)
        return None

    def read(self, task: str, tail: int | None = None) -> Iterator[Frame]:
        """A log, or the last `tail` lines of it, counted over both streams as Docker does.

        For a log that was cut, these are the last lines of each stream: after the cut, streams are not in order.
        """
        if tail is None:
            return self._frames(task)
        return _tail(self._frames(task), tail, apart=self.state(task) == "cut")

    def open(self, task: str) -> BinaryIO:
        """The file of a log, for reading. Raises StateError if there is none."""
        with _explained(self._path(task)):
            return self._path(task).open("rb")

    def _frames(self, task: str) -> Iterator[Frame]:
        with _explained(self._path(task)), self._path(task).open("rb") as file:
            for kind, data in read_frames(file):
                if kind == END:
                    return
                yield kind, data
        raise self._damaged(task)

    def _count(self, size: int) -> None:
        if self._used is not None:
            self._used += size

    def _path(self, task: str) -> Path:
        # Ids may come from labels, which are untrusted.
        return self._folder / (quote(task, safe="") + _SUFFIX)

    def _damaged(self, task: str) -> StateError:
        return StateError(f"the kept log of task {task} is damaged; to remove it, run: agentless rm {task}")


class LogWriter:
    """A log that is being written. It is stored by `finish` and `commit`, else nothing of it remains.

    `head` counts the bytes of each stream. `full`: more than the cap was added. Then only the first half of the cap is
    kept; call `cut`, and `put` for the end of the log. All methods raise StateError.
    """

    def __init__(self, path: Path, cap: int, take_in: Callable[[int], None]) -> None:
        self.head = {1: 0, 2: 0}
        self.full = False
        self._path, self._cap, self._take_in = path, cap, take_in
        self._unfinished = path.with_suffix(_UNFINISHED)
        self._half = (0, {1: 0, 2: 0})
        with _explained(path):
            handle = os.open(self._unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file: BinaryIO = os.fdopen(handle, "wb")

    @property
    def tail_bytes(self) -> int:
        """The limit for the end of a log that is `full`, in bytes."""
        return self._cap - self._cap // 2

    def add(self, stream: int, data: bytes) -> None:
        """Add bytes of a stream."""
        cut = max(0, self._cap // 2 - sum(self.head.values()))
        for part in filter(None, (data[:cut], data[cut:])):
            self.put(stream, part)
            self.head[stream] += len(part)
            if sum(self.head.values()) == self._cap // 2:
                self._half = (self._file.tell(), dict(self.head))
        if sum(self.head.values()) > self._cap:
            self.full = True
            place, self.head = self._half
            with _explained(self._path):
                self._file.seek(place)
                self._file.truncate()

    def cut(self, words: str) -> None:
        """Write a note about what is left out here."""
        self.put(NOTE, words.encode())

    def put(self, stream: int, data: bytes) -> None:
        """Write a frame."""
        with _explained(self._path):
            self._file.write(frame(stream, data))

    def finish(self) -> None:
        """Sync the file to disk, which may take long."""
        self.put(END, b"")
        with _explained(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def commit(self) -> None:
        """Store the log, in place of an earlier one of this task."""
        with _explained(self._path):
            size = self._file.tell()
            os.replace(self._unfinished, self._path)
            private.sync_folder(self._path.parent)
        self._take_in(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._unfinished.unlink(missing_ok=True)


def _dated(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Time of storing (ns), bytes on disk and path of each log."""
    for entry in os.scandir(folder):
        if entry.name.endswith(_SUFFIX) and (status := entry.stat()).st_size:
            yield status.st_mtime_ns, _on_disk(status.st_size), Path(entry.path)


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _explained(path: Path) -> AbstractContextManager[None]:
    return private.explained(f"cannot keep or read the log {path}")


def _lines(frames: Iterable[Frame], count: int) -> Iterator[Frame]:
    """The lines in the order of their ends. Of each frame, only the last `count`."""
    rest = {1: b"", 2: b""}
    for stream, data in chain(frames, [(END, b"")]):
        if stream in rest:
            *lines, line = (rest[stream] + data).rsplit(b"\n", count + 1)
            for whole in lines[max(0, len(lines) - count) :]:
                yield from _pieces(stream, whole + b"\n")
            full = len(line) - len(line) % _PIECE
            yield from _pieces(stream, line[:full])
            rest[stream] = line[full:]
        else:
            yield from (piece for piece in rest.items() if piece[1])
            rest = {1: b"", 2: b""}
            if stream == NOTE:
                yield stream, data


def _pieces(stream: int, line: bytes) -> Iterator[Frame]:
    return ((stream, line[start : start + _PIECE]) for start in range(0, len(line), _PIECE))


def _tail(frames: Iterable[Frame], count: int, *, apart: bool) -> Iterator[Frame]:
    """The last `count` lines, of each stream if `apart`; the note goes first if some are from before the cut."""
    last = {key: deque[Frame](maxlen=count) for key in ((1, 2) if apart else (0,))}
    since, note = dict.fromkeys(last, 0), b""
    for stream, line in _lines(frames, count):
        if stream == NOTE:
            since, note = dict.fromkeys(last, 0), line
        else:
            key = stream if apart else 0
            last[key].append((stream, line))
            since[key] += 1
    if note and any(lines and since[key] < count for key, lines in last.items()):
        yield NOTE, note
    for stream, lines in groupby(chain(*last.values()), key=lambda line: line[0]):
        yield stream, b"".join(data for _, data in lines)
