"""Moves unpacked outputs to their places. A file that is neither uploaded nor an output is never overwritten."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentless.model.text import cut, shown
from agentless.model.units import format_size, thousands
from agentless.stores.files.output_archive import LISTED, REASONS, WORD, Arrival, Unusable
from agentless.stores.files.outputs import OutputStore

_BATCH = 1000
"""Files that are moved before their digests are recorded."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What was stored, in words and numbers."""

    words: str
    files: int
    bytes: int


def arrive(
    top: Path, local: Path, task: str, store: OutputStore, known: Mapping[str, str], arrivals: Iterable[Arrival]
) -> Placed:
    """Put what was unpacked at `top` in its place. May run in a thread.

    An existing file that is neither as it was uploaded (`known`, by path) nor as an output has put it there belongs to
    the user. It stays, and the output is put beside it, with the task's id as suffix.
    """
    placing = _Placing(local, task, store, known)
    if top.is_dir() and not top.is_symlink():
        placing.make_folders(top)
    for arrival in arrivals:
        placing.take_over(arrival)
        for path, digest in arrival.digests.items():
            placing.place(str(top / path) if path else str(top), path, digest)
    return placing.done()


class _Placing:
    """Moves files to their places, one after the other."""

    def __init__(self, local: Path, task: str, store: OutputStore, known: Mapping[str, str]) -> None:
        self._local, self._task, self._store, self._known = str(local), task, store, known
        self._files = self._bytes = self._beside_count = 0
        self._beside: list[str] = []
        self._left = Arrival()
        self._placed: dict[str, str] = {}
        self._blocked: dict[str, str | None] = {"": None}

    def take_over(self, arrival: Arrival) -> None:
        """Add what the archive left out."""
        self._left.left_out += arrival.left_out
        self._left.left_out_count += arrival.left_out_count

    def make_folders(self, top: Path) -> None:
        """Make the folders of the output, where nothing else is in the way."""
        for folder, _, _ in os.walk(top):
            path = os.path.relpath(folder, top)
            place = self._local if path == "." else os.path.join(self._local, path)
            above = None if path == "." else self._in_the_way(posixpath.dirname(path))
            if above or (os.path.lexists(place) and not os.path.isdir(place)):
                if folder == str(top):
                    raise Unusable(f"{self._local} is a file here but a folder in the container")
            elif not os.path.exists(place):
                os.makedirs(place)
                os.chmod(place, stat.S_IMODE(os.stat(folder).st_mode))

    def place(self, source: str, path: str, digest: str) -> None:
        """Move one file or link."""
        place = os.path.join(self._local, path) if path else self._local
        if path and (above := self._in_the_way(posixpath.dirname(path))):
            self._left.leave_out(path, f"{shown(above)} is not a folder here")
            return
        try:
            self._put(source, place, path, digest)
        except OSError as error:
            if error.errno not in REASONS:
                raise
            self._left.leave_out(path or place, REASONS[error.errno])

    def _put(self, source: str, place: str, path: str, digest: str) -> None:
        have = _digest(place)
        if have != digest:
            if have is not None and have not in (self._store.placed(place), self._known.get(place)):
                place = f"{place}.{self._task}"
                if os.path.isdir(place) and not os.path.islink(place):
                    self._left.leave_out(path, f"{shown(os.path.basename(place))} is a folder here")
                    return
                self._beside_count += 1
                if len(self._beside) < LISTED:
                    self._beside.append(cut(shown(os.path.basename(place)), WORD))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            size = os.lstat(source).st_size
            os.replace(source, place)
            self._files, self._bytes = self._files + 1, self._bytes + size
        self._placed[place] = digest
        if len(self._placed) >= _BATCH:
            self._remember()

    def done(self) -> Placed:
        """Finish, and describe what was done."""
        self._remember()
        count = f"{thousands(self._files, 'file')}, {format_size(self._bytes)}"
        words = [count if self._files else "no new or changed files"]
        if self._beside:
            words.append(
                f"kept your changes; saved the task's files beside them: {_some(self._beside, self._beside_count)}"
            )
        if self._left.left_out:
            words.append(f"skipped: {_some(self._left.left_out[:LISTED], self._left.left_out_count)}")
        return Placed("; ".join(words), self._files, self._bytes)

    def _remember(self) -> None:
        self._store.place(self._placed)
        self._placed = {}

    def _in_the_way(self, folder: str) -> str | None:
        """The first folder on this path that is not a folder, or only a link to one."""
        if folder not in self._blocked:
            place, found = os.path.join(self._local, folder), self._in_the_way(posixpath.dirname(folder))
            if found is None and (os.path.islink(place) or (os.path.exists(place) and not os.path.isdir(place))):
                found = folder
            self._blocked[folder] = found
        return self._blocked[folder]


def _digest(path: str) -> str | None:
    """The digest of what is at a path, as in `Arrival`; None if nothing is."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"link:{os.readlink(path)}"
        if not stat.S_ISREG(mode):
            return "something else"
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _some(names: list[str], count: int) -> str:
    return ", ".join(names) + (f" and {count - len(names):,} more" if count > len(names) else "")
