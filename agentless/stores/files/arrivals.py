"""Files that arrive from a container, whose archive is anybody's words: unpacked apart, then put in their places.

Nothing leads out of the folder that they are for: names are taken apart, links are made after all files and only if
they stay inside, devices and the like are left out, and of modes there are only the bits of ordinary files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path

from agentless.errors import RuntimeFailed
from agentless.formats.archive import Folders, Parts, write_content
from agentless.formats.tar import BadArchive, Incomplete, Member, Reading, Tar
from agentless.model.files.task_files import MOST_LEVELS
from agentless.model.text import cut, shown
from agentless.model.units import format_size
from agentless.rules.files.task_files import is_junk
from agentless.stores.files.outputs import OutputStore

MOST = 1_000_000
"""Files and folders of one output."""
MOST_ZEROS = 64 << 30
"""Bytes of one output that are holes in files here: Docker sends and reads each of them."""
ZEROS = 32 << 20
"""Zeros in a row from which on a stream is better compressed."""
TOLD = 3
_TOGETHER = 1000
"""Files that are placed before that is remembered."""
_WORD = 200
"""Characters of a name in a message."""
_ZEROS = bytes(1 << 20)
_REASONS = {
    errno.ENAMETOOLONG: "whose name is too long here",
    errno.EINVAL: "whose name cannot be had here",
    errno.EILSEQ: "whose name cannot be had here",
    errno.ENOTDIR: "which is not in a folder",
    errno.ELOOP: "which is not in a folder",
    errno.EEXIST: "which is not in a folder",
    errno.EISDIR: "which is a file and a folder",
    errno.EMLINK: "which has too many names here",
    errno.EFBIG: "which is too large for the disk here",
}
"""Why a file is left out, by what the system says: another try would end the same. All else is a fault of the disk."""


class Unusable(RuntimeFailed):
    """What came can never be put in its place: to fetch it again would give the same."""


class ZerosAhead(Exception):
    """The stream goes on with many zeros; it is better asked for again, compressed."""


@dataclass
class Arrival:
    """What was unpacked: by path from the top on the SHA-256, `link:…` for a link; and what was left out, in words.

    Of `left_out` there are only the first, and how many there are in `left_out_count`.
    """

    digests: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    left_out_count: int = 0
    members: int = 0
    zeros: int = 0

    def leave_out(self, name: str, why: str) -> None:
        """Take down that this does not come."""
        self.left_out_count += 1
        if len(self.left_out) < TOLD:
            self.left_out.append(f"{cut(shown(name), _WORD)}, {why}")


@dataclass(frozen=True, slots=True)
class Placed:
    """What was put in its place, in words and numbers."""

    words: str
    files: int
    bytes: int


class Unpacking:
    """Unpacks one archive, the first name of which stands for `below` within `top`; `arrival` is what has come of it.

    With `changed` what nobody wants back is left out. `before` came of the same output. Without `packed` a row of zeros
    raises ZerosAhead.
    """

    def __init__(
        self, top: Path, below: str, before: Iterable[Arrival] = (), *, changed: bool = False, packed: bool = False
    ) -> None:
        self.arrival = Arrival()
        self._top, self._below, self._changed, self._packed = top, below, changed, packed
        self._members = sum(each.members for each in before)
        self._zeros = sum(each.zeros for each in before)
        self._links: list[tuple[str, str]] = []

    def reading(self) -> Reading[None]:
        """May run in threads. Raises Unusable, RuntimeFailed for half an archive, ZerosAhead, and OSError."""
        tar = Tar()
        root = os.open(self._top.parent, os.O_RDONLY | os.O_DIRECTORY)
        self._folders, self._others = Folders(root), Folders(root)
        try:
            while member := (yield from tar.next()):
                self.arrival.members += 1
                if self._members + self.arrival.members > MOST:
                    raise Unusable(f"there are more than {MOST:,} files in it; bring less, or one archive")
                yield from self._one(tar, member)
            if not self.arrival.members:
                raise Incomplete("it is empty")
            for path, target in self._links:
                with self._leaving_out(path):
                    self._link(path, target)
        except Incomplete as error:
            raise RuntimeFailed(f"what came of it is not whole: {error}") from None
        except BadArchive as error:
            raise Unusable(f"what came of it is no archive: {error}") from None
        finally:
            self._folders.close()
            self._others.close()
            os.close(root)

    def _one(self, tar: Tar, member: Member) -> Reading[None]:
        path = self._path(member.name)
        if path is None:
            self.arrival.leave_out(member.name, "which leads elsewhere")
            return
        if self._changed and is_junk(path):
            return
        with self._leaving_out(path):
            parts = self._parts(path)
            if member.kind == "folder":
                os.fchmod(self._folders.open(parts), (member.mode & 0o755) | 0o700)
            elif member.kind == "file":
                self.arrival.digests[path] = yield from self._write(tar, member, self._folders.open(parts[:-1]), parts)
            elif member.kind == "hard link":
                self._same(path, member.link)
            elif member.kind == "link":
                self._links.append((path, member.link))
            else:
                self.arrival.leave_out(path or member.name, "which is no file")

    def _path(self, name: str) -> str | None:
        """Where it goes from the top on, empty for the top itself; None when it leads elsewhere."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name:
            return None
        return posixpath.join(self._below, *(parts if name.startswith("./") else parts[1:]))

    def _parts(self, path: str) -> Parts:
        """Where it is from the folder of the top on."""
        parts = (self._top.name, *path.split("/")) if path else (self._top.name,)
        if len(parts) > MOST_LEVELS:
            raise OSError(errno.ENAMETOOLONG, "too many folders")
        if ".." in parts:  # of where it is unpacked; the names in the archive were looked at
            raise OSError(errno.EINVAL, "leads elsewhere")
        return parts

    @contextlib.contextmanager
    def _leaving_out(self, path: str) -> Iterator[None]:
        """Without this one, if it is what cannot be here."""
        try:
            yield
        except OSError as error:
            if error.errno not in _REASONS:
                raise
            self.arrival.leave_out(path or "it", _REASONS[error.errno])
        except UnicodeEncodeError:  # the locale has no such character
            self.arrival.leave_out(path or "it", _REASONS[errno.EILSEQ])

    def _write(self, tar: Tar, member: Member, folder: int, parts: Parts) -> Reading[str]:
        room = os.fstatvfs(folder)
        free = room.f_bavail * room.f_frsize
        if member.size > free + MOST_ZEROS:
            raise Unusable(
                f"a file in it has {format_size(member.size)}, and of those at most {format_size(MOST_ZEROS)} may be "
                f"zeros: {format_size(free)} are free here; bring less, or an archive made by tar --sparse"
            )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open(parts[-1], flags, 0o600, dir_fd=folder)
        seen = _Seen(self)
        try:
            yield from write_content(tar, member, file, seen)
            os.fchmod(file, (member.mode & 0o755) | 0o600)
            if member.mtime >= 0:
                os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)
        return seen.digest.hexdigest()

    def zeros(self, count: int, run: int) -> None:
        """So many more are holes now, `run` of them in a row."""
        self.arrival.zeros += count
        if self._zeros + self.arrival.zeros > MOST_ZEROS:
            raise Unusable(
                f"more than {format_size(MOST_ZEROS)} of it are zeros; bring less, or an archive made by tar --sparse"
            )
        if run >= ZEROS and not self._packed:
            raise ZerosAhead

    def _same(self, path: str, target: str) -> None:
        """Another name of a file that came before."""
        first, parts = self._path(target), self._parts(path)
        if first is None or self.arrival.digests.get(first) is None:
            self.arrival.leave_out(path, f"a link to {cut(shown(target), _WORD)}, which did not come")
            return
        folder, there = self._folders.open(parts[:-1]), self._parts(first)
        if first == path:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=folder)
        source = self._others.open(there[:-1])
        os.link(there[-1], parts[-1], src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        self.arrival.digests[path] = self.arrival.digests[first]

    def _link(self, path: str, target: str) -> None:
        # A `..` further on goes up from wherever the links before it lead: that could be anywhere.
        down = list(dropwhile(lambda part: part in ("..", "."), target.split("/")))
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        leads_out = ".." in down or target.startswith("/") or inside == ".." or inside.startswith("../")
        if not path or not target or "\0" in target or leads_out:
            self.arrival.leave_out(path or "it", f"a link to {cut(repr(target), _WORD)}, which leads elsewhere")
            return
        parts = self._parts(path)
        folder = self._folders.open(parts[:-1])
        with contextlib.suppress(FileNotFoundError):
            os.lstat(parts[-1], dir_fd=folder)
            return
        os.symlink(target, parts[-1], dir_fd=folder)
        self.arrival.digests[path] = f"link:{target}"


class _Seen:
    """Sees the content of a file go by: what it is, and how much of it is zeros."""

    def __init__(self, unpacking: Unpacking) -> None:
        self.digest = hashlib.sha256()
        self._unpacking, self._run = unpacking, 0

    def __call__(self, hole: int, data: bytes) -> None:
        """The next of it: a hole of this length, else these bytes."""
        if data:
            self._run = 0
            self.digest.update(data)
            return
        self._run += hole
        self._unpacking.zeros(hole, self._run)
        while hole:
            piece = min(hole, len(_ZEROS))
            self.digest.update(_ZEROS if piece == len(_ZEROS) else _ZEROS[:piece])
            hole -= piece


def arrive(
    top: Path, local: Path, task: str, store: OutputStore, known: Mapping[str, str], arrivals: Iterable[Arrival]
) -> Placed:
    """Put what was unpacked at `top` in its place. May run in a thread.

    What stands there and is neither as it was uploaded (`known`, by path) nor as an output has put it there before is
    somebody's: it stays, and what came is put beside it, with the task's id at its end.
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
    """Puts files in their places, one after the other."""

    def __init__(self, local: Path, task: str, store: OutputStore, known: Mapping[str, str]) -> None:
        self._local, self._task, self._store, self._known = str(local), task, store, known
        self._files = self._bytes = self._beside_count = 0
        self._beside: list[str] = []
        self._left = Arrival()
        self._placed: dict[str, str] = {}
        self._blocked: dict[str, str | None] = {"": None}

    def take_over(self, arrival: Arrival) -> None:
        """What was left out before."""
        self._left.left_out += arrival.left_out
        self._left.left_out_count += arrival.left_out_count

    def make_folders(self, top: Path) -> None:
        """Those that came, as far as nothing else is there."""
        for folder, _, _ in os.walk(top):
            path = os.path.relpath(folder, top)
            place = self._local if path == "." else os.path.join(self._local, path)
            above = None if path == "." else self._in_the_way(posixpath.dirname(path))
            if above or (os.path.lexists(place) and not os.path.isdir(place)):
                if folder == str(top):
                    raise Unusable(f"{self._local} is a file here, and a folder in the container")
            elif not os.path.exists(place):
                os.makedirs(place)
                os.chmod(place, stat.S_IMODE(os.stat(folder).st_mode))

    def place(self, source: str, path: str, digest: str) -> None:
        """One file or link."""
        place = os.path.join(self._local, path) if path else self._local
        if path and (above := self._in_the_way(posixpath.dirname(path))):
            self._left.leave_out(path, f"since {shown(above)} is no folder here")
            return
        try:
            self._put(source, place, path, digest)
        except OSError as error:
            if error.errno not in _REASONS:
                raise
            self._left.leave_out(path or place, _REASONS[error.errno])

    def _put(self, source: str, place: str, path: str, digest: str) -> None:
        have = _digest(place)
        if have != digest:
            if have is not None and have not in (self._store.placed(place), self._known.get(place)):
                place = f"{place}.{self._task}"
                if os.path.isdir(place) and not os.path.islink(place):
                    self._left.leave_out(path, f"since {shown(os.path.basename(place))} is a folder here")
                    return
                self._beside_count += 1
                if len(self._beside) < TOLD:
                    self._beside.append(cut(shown(os.path.basename(place)), _WORD))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            size = os.lstat(source).st_size
            os.replace(source, place)
            self._files, self._bytes = self._files + 1, self._bytes + size
        self._placed[place] = digest
        if len(self._placed) >= _TOGETHER:
            self._remember()

    def done(self) -> Placed:
        """What was done."""
        self._remember()
        count = f"{self._files:,} file{'s' * (self._files != 1)}, {format_size(self._bytes)}"
        words = [count if self._files else "nothing new"]
        if self._beside:
            words.append(
                f"what was changed here meanwhile stays, and beside it is {_some(self._beside, self._beside_count)}"
            )
        if self._left.left_out:
            words.append(f"left out: {_some(self._left.left_out[:TOLD], self._left.left_out_count)}")
        return Placed("; ".join(words), self._files, self._bytes)

    def _remember(self) -> None:
        self._store.place(self._placed)
        self._placed = {}

    def _in_the_way(self, folder: str) -> str | None:
        """The first of the folders on the way to this one and itself that is none, or only a link to one."""
        if folder not in self._blocked:
            place, found = os.path.join(self._local, folder), self._in_the_way(posixpath.dirname(folder))
            if found is None and (os.path.islink(place) or (os.path.exists(place) and not os.path.isdir(place))):
                found = folder
            self._blocked[folder] = found
        return self._blocked[folder]


def _digest(path: str) -> str | None:
    """What stands there, as `Arrival` has it; None when nothing does."""
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
