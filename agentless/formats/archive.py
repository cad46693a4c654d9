"""Copies as a tar stream, packed and unpacked: for nodes without rsync, and for containers.

Archives from nodes are untrusted: see `tree`. Devices, setuid bits and owners are not copied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Any

from agentless.errors import CopyFailed
from agentless.formats.tar import CHUNK, BadArchive, Incomplete, Member, Parsing, Tar, pulled
from agentless.formats.tree import NotAFolder, Parts, Tree
from agentless.model.files.upload_limits import MOST_LEVELS
from agentless.model.text import shown

_MODE = 0o777
"""The mode bits that are copied: without setuid and setgid."""
Notes = list[str]


class ExactReader:
    """Reads exactly `size` bytes of a file, even if it becomes shorter or longer meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.is_short = False

    def read(self, size: int = -1) -> bytes:
        """The next bytes; zeros if the file has become shorter."""
        size = self._left if size < 0 else min(size, self._left)
        data = b"" if self.is_short else self._file.read(size)
        self._left -= size
        if len(data) < size:
            self.is_short = True
            data += bytes(size - len(data))
        return data


def pack(sink: Any, source: str, name: str, *, whole: str | None = None) -> Notes:
    """Write a file or folder to a sink with `write`, as a tar stream in which it is called `name`.

    `whole` is the name of an empty file at the end, which shows that the stream is complete. Owners are left out.
    Returns what could not be read, one sentence each.
    """
    notes: Notes = []
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.GNU_FORMAT, bufsize=CHUNK) as archive:
        for path, inner in _walk(source, name, notes):
            with _noting(notes, path):
                _add(archive, path, inner, notes, is_named=inner == name)
        if whole is not None:
            archive.addfile(_plain(tarfile.TarInfo(whole)))
    return notes


def _walk(source: str, name: str, notes: Notes) -> Iterator[tuple[str, str]]:
    """All paths and their names in the archive. A folder comes before its content, and again after it.

    GNU tar expects the content right after the folder; BusyBox sets the time of a folder immediately.
    """
    yield source, name
    if not os.path.isdir(source):
        return
    # The source itself is followed if it is a link; links below it are copied as links.
    stack = [(source, name, _inside(source, name, notes))]
    while stack:
        folder, inner, entries = stack[-1]
        for path, under, is_folder in entries:
            yield path, under
            if is_folder:
                stack.append((path, under, _inside(path, under, notes)))
                break
        else:
            yield folder, inner
            stack.pop()


def _inside(folder: str, name: str, notes: Notes) -> Iterator[tuple[str, str, bool]]:
    """The entries of a folder: path, name in the archive, and whether it is a folder."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        notes.append(_sentence(error, folder))
    for entry in found:
        yield entry.path, f"{name.rstrip('/')}/{entry.name}", entry.is_dir(follow_symlinks=False)


def _add(archive: tarfile.TarFile, path: str, inner: str, notes: Notes, *, is_named: bool) -> None:
    archive.dereference = is_named
    info = archive.gettarinfo(path, inner)
    _forget(archive)
    if not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
        notes.append(f"skipped {shown(path)}: neither a file nor a folder")
    elif info.isreg():
        with open(path, "rb") as file:
            reader = ExactReader(file, info.size)
            archive.addfile(_plain(info), reader)
        if reader.is_short:
            notes.append(f"{shown(path)} shrank during the copy")
    else:
        archive.addfile(_plain(info))


def _forget(archive: tarfile.TarFile) -> None:
    """Prevent tarfile from keeping all members in memory: there may be millions."""
    archive.members = []  # type: ignore[attr-defined]


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode &= _MODE & ~forbidden_bits()
    return info


class Unpacker:
    """Fills `name` in a folder here from a tar stream.

    The first `strip` parts of each member's name are removed. The rest is a path below `name`.
    """

    def __init__(self, folder: str, name: str, strip: int, count: Callable[[int], None]) -> None:
        self.notes: Notes = []
        self._folder, self._name, self._strip, self._count = folder, name, strip, count
        self._written: set[Parts] = set()
        self._made: dict[Parts, Member | None] = {}
        self._mode = _MODE & ~forbidden_bits()

    def unpack(self, stream: Any) -> int:
        """Read to the end. Returns the number of members. Raises CopyFailed, and errors of the stream."""
        try:
            return pulled(self._unpack(Tar()), stream.read)
        except Incomplete as error:
            raise CopyFailed(f"received incomplete data: {error}; retry") from None
        except BadArchive as error:
            raise CopyFailed(f"received an invalid or damaged tar stream: {error}") from None

    def _unpack(self, tar: Tar) -> Parsing[int]:
        members = 0
        with self._at(self._folder):
            root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._tree = Tree(root, self._made.setdefault)
        try:
            while member := (yield from tar.next()):
                yield from self._take(tar, member)
                members += 1
            for parts, made in sorted(self._made.items(), key=lambda item: item[0], reverse=True):
                self._finish_folder(parts, made)
        finally:
            self._tree.close()
            os.close(root)
        return members

    def _take(self, tar: Tar, member: Member) -> Parsing[None]:
        parts = self._parts(member.name)
        path = os.path.join(self._folder, *parts)
        if len(parts) > MOST_LEVELS:
            self.notes.append(f"skipped {shown(path)}: more than {MOST_LEVELS} folders deep")
            return
        with self._at(path):
            if member.kind == "folder":
                self._tree.folder(parts)
                if parts in self._made:
                    self._made[parts] = member
                return
            if member.kind == "file":
                mode = member.mode & self._mode
                yield from self._tree.file(parts, tar, member, mode=mode, mtime=member.mtime, seen=self._seen)
            elif member.kind == "link":
                self._tree.link(parts, member.link, member.mtime)
            elif member.kind == "hard link":
                self._put_same(parts, self._parts(member.link), path)
            else:
                self.notes.append(f"skipped {shown(path)}: a device or a pipe")
                return
        self._written.add(parts)

    def _seen(self, hole: int, data: bytes) -> None:
        self._count(hole + len(data))

    def _parts(self, name: str) -> Parts:
        """The path of a member below the folder. Raises CopyFailed if it leads out of it."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name or (name.startswith("/") and not self._strip):
            raise CopyFailed(f"rejected {name[:80]!r}: its path leads outside {self._folder}; copy stopped")
        if not parts:  # for the root folder, an engine sends `./` and `./file`
            self._strip = 0
        return (self._name, *parts[self._strip :])

    def _put_same(self, parts: Parts, source: Parts, path: str) -> None:
        """Make a hard link to a file of the same archive."""
        if source not in self._written:
            raise CopyFailed(f"rejected {shown(path)}: a link to a file that is not in the copy; copy stopped")
        self._tree.hard_link(parts, source)

    def _finish_folder(self, parts: Parts, member: Member | None) -> None:
        """Set the mode and time of a new folder, after everything in it was written."""
        with self._at(os.path.join(self._folder, *parts)):
            folder = self._tree.folder(parts)
            os.fchmod(folder, (member.mode if member else 0o755) & self._mode)
            if member:
                os.utime(folder, (member.mtime, member.mtime))

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[None]:
        """Raises CopyFailed for an OSError at a local path."""
        try:
            yield
        except NotAFolder as error:
            raise CopyFailed(_sentence(error, os.path.join(self._folder, error.filename))) from None
        except (OSError, ValueError, OverflowError) as error:
            raise CopyFailed(_sentence(error, path)) from None


def forbidden_bits() -> int:
    """The write bits for group and others that the umask of this process forbids. A copy keeps all other bits."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask & 0o022


@contextlib.contextmanager
def _noting(notes: Notes, path: str) -> Iterator[None]:
    """Note unreadable local files and go on. Errors of the sink have no file name, and are raised."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        notes.append(_sentence(error, path))


def _sentence(error: Exception, path: str) -> str:
    number = getattr(error, "errno", None)
    words = getattr(error, "strerror", None) or str(error)
    if isinstance(error, UnicodeEncodeError):
        words = "invalid name in this locale; retry with LC_ALL=C.UTF-8"
    elif number in (errno.ELOOP, errno.ENOTDIR):
        words = "is in the way: not a folder"
    elif number in (errno.ENOSPC, errno.EDQUOT):
        words = "the disk is full here"
    where = path or os.fsdecode(getattr(error, "filename", "") or "")
    return f"{shown(where)}: {words[:1].lower()}{words[1:]}"
