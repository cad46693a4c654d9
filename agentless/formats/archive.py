"""Files as a tar stream, written and unpacked: for nodes without rsync, and for containers.

What comes from a node is not trusted. No member gets out of the folder that is filled, since every folder on its way is
opened from the one before, and never through a link; no device, setuid bit or owner comes along. A file gets its name
when it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Any

from agentless.errors import CopyFailed
from agentless.formats.tar import CHUNK, BadArchive, Incomplete, Member, Reading, Tar, pulled
from agentless.model.files.task_files import MOST_LEVELS
from agentless.model.text import shown

_MODE = 0o777
"""Of a mode: not the bits that let a program run as its owner."""
_HOLE = 1 << 16
"""Bytes that are left out of a file where they are zero."""
_ZEROS = bytes(_HOLE)
Notes = list[str]
Parts = tuple[str, ...]


class Reader:
    """A file of a known size as a tar wants it: exactly that many bytes, whatever happens to it meanwhile."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size
        self.is_short = False

    def read(self, size: int = -1) -> bytes:
        """The next bytes; zeros when it has become shorter."""
        size = self._left if size < 0 else min(size, self._left)
        data = b"" if self.is_short else self._file.read(size)
        self._left -= size
        if len(data) < size:
            self.is_short = True
            data += bytes(size - len(data))
        return data


def pack(sink: Any, source: str, name: str, *, whole: str | None = None) -> Notes:
    """Write a file or folder to a sink with `write`, as a tar stream in which it is called `name`.

    `whole` is the name of an empty file at the end: whoever finds it has all of it. Owners are left out. Gives what
    could not be read, one sentence each.
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
    """Each path below and its name in the archive; a folder comes before what is in it, and once more after that.

    GNU tar wants what is in a folder right after it; BusyBox sets the time of a folder as soon as it meets it.
    """
    yield source, name
    if not os.path.isdir(source):
        return
    # A link that was named is followed, those below are links.
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
    """What is in a folder: its path, its name in the archive, and whether it is a folder."""
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
        notes.append(f"{shown(path)} is neither a file nor a folder, and was left out")
    elif info.isreg():
        with open(path, "rb") as file:
            reader = Reader(file, info.size)
            archive.addfile(_plain(info), reader)
        if reader.is_short:
            notes.append(f"{shown(path)} became shorter while it was copied")
    else:
        archive.addfile(_plain(info))


def _forget(archive: tarfile.TarFile) -> None:
    """It would remember all its members, which may be millions."""
    archive.members = []  # type: ignore[attr-defined]


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode &= _MODE & ~forbidden_bits()
    return info


class Folders:
    """Folders below one that is open: each is opened from the one above, never through a link, and made if missing.

    The last one stays open, since what is in a folder mostly comes one after the other. `made` is told of new ones.
    """

    def __init__(self, top: int, made: Callable[[Parts], object] = lambda _: None) -> None:
        self._top, self._made = top, made
        self._parts: Parts = ()
        self._opened = -1

    def open(self, parts: Parts) -> int:
        """The folder that these parts lead to, until the next call. An OSError names the first that is none."""
        if ".." in parts:
            raise OSError(errno.EINVAL, "leads elsewhere", "/".join(parts))
        if self._opened >= 0 and parts[: len(self._parts)] != self._parts:
            self.close()
        for depth in range(len(self._parts) + 1, len(parts) + 1):
            part, above = parts[depth - 1], self._opened if self._opened >= 0 else self._top
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=above)
                    self._made(parts[:depth])
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            except OSError as error:
                raise OSError(error.errno, error.strerror, "/".join(parts[:depth])) from None
            self.close()
            self._opened, self._parts = inner, parts[:depth]
        return self._opened if self._opened >= 0 else self._top

    def close(self) -> None:
        """Let go of the last one."""
        if self._opened >= 0:
            os.close(self._opened)
        self._opened, self._parts = -1, ()


def write_content(tar: Tar, member: Member, file: int, seen: Callable[[int, bytes], None]) -> Reading[None]:
    """Write the content of a member to an empty file, and leave holes where it is zero.

    `seen` is told of it in its order: of a hole by its length, else of the bytes.
    """
    end = 0

    def take(offset: int, data: bytes) -> None:
        nonlocal end
        if offset > end:
            seen(offset - end, b"")
        end = offset + len(data)
        for start in range(0, len(data), _HOLE):
            piece = data[start : start + _HOLE]
            if piece == _ZEROS[: len(piece)]:
                seen(len(piece), b"")
            else:
                seen(0, piece)
                _write_at(file, offset + start, piece)

    yield from tar.content(take)
    if member.size > end:
        seen(member.size - end, b"")
    os.ftruncate(file, member.size)


def _write_at(file: int, offset: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written


class Unpacker:
    """Fills `name` in a folder here from a tar stream.

    Of the name of each member `strip` parts are left out; what is left, if anything, is below `name`.
    """

    def __init__(self, folder: str, name: str, strip: int, count: Callable[[int], None]) -> None:
        self.notes: Notes = []
        self._folder, self._name, self._strip, self._count = folder, name, strip, count
        self._written: set[Parts] = set()
        self._made: dict[Parts, Member | None] = {}
        self._mode = _MODE & ~forbidden_bits()

    def unpack(self, stream: Any) -> int:
        """Read to the end; how many members there were. Raises CopyFailed, and whatever the stream raises."""
        try:
            return pulled(self._unpack(Tar()), stream.read)
        except Incomplete as error:
            raise CopyFailed(f"what came is not whole: {error}; try again") from None
        except BadArchive as error:
            raise CopyFailed(f"what came is no tar stream, or a damaged one: {error}") from None

    def _unpack(self, tar: Tar) -> Reading[int]:
        members = 0
        with self._at(self._folder):
            root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._folders, self._others = Folders(root, self._made.setdefault), Folders(root)
        try:
            while member := (yield from tar.next()):
                yield from self._take(tar, member)
                members += 1
            for parts, made in sorted(self._made.items(), key=lambda item: item[0], reverse=True):
                self._finish_folder(parts, made)
        finally:
            self._folders.close()
            self._others.close()
            os.close(root)
        return members

    def _take(self, tar: Tar, member: Member) -> Reading[None]:
        parts = self._parts(member.name)
        path = os.path.join(self._folder, *parts)
        if len(parts) > MOST_LEVELS:
            self.notes.append(f"{shown(path)} is more than {MOST_LEVELS} folders deep, and was left out")
            return
        with self._at(path):
            if member.kind == "folder":
                self._opened(self._folders, parts)
                if parts in self._made:
                    self._made[parts] = member
                return
            folder = self._opened(self._folders, parts[:-1])
            if member.kind == "file":
                with _placed(folder, parts[-1]) as fresh:
                    yield from self._write(tar, member, folder, fresh)
            elif member.kind == "link":
                with _placed(folder, parts[-1]) as fresh:
                    os.symlink(member.link, fresh, dir_fd=folder)
                    os.utime(fresh, (member.mtime, member.mtime), dir_fd=folder, follow_symlinks=False)
            elif member.kind == "hard link":
                self._put_same(self._parts(member.link), folder, parts[-1], path)
            else:
                self.notes.append(f"{shown(path)} would be a device or a pipe, and was left out")
                return
        self._written.add(parts)

    def _parts(self, name: str) -> Parts:
        """Where a member goes, from the folder on; raises CopyFailed for one that would get out of it."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name or (name.startswith("/") and not self._strip):
            raise CopyFailed(f"what came has a member {name[:80]!r}, that leads out of {self._folder}; ended there")
        # Of `folder/.` an engine sends `./file` and no name of the folder, which would be one part.
        return (self._name, *parts[0 if name.startswith("./") else self._strip :])

    def _opened(self, folders: Folders, parts: Parts) -> int:
        try:
            return folders.open(parts)
        except OSError as error:
            raise CopyFailed(_sentence(error, os.path.join(self._folder, error.filename))) from None

    def _write(self, tar: Tar, member: Member, folder: int, fresh: str) -> Reading[None]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open(fresh, flags, 0o600, dir_fd=folder)
        try:
            yield from write_content(tar, member, file, lambda hole, data: self._count(hole + len(data)))
            os.fchmod(file, member.mode & self._mode)
            os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)

    def _put_same(self, source: Parts, folder: int, name: str, path: str) -> None:
        """Another name of a file that was put here before."""
        if source not in self._written:
            raise CopyFailed(f"what came has a link from {shown(path)} to a file that it has not brought; ended there")
        there = self._opened(self._others, source[:-1])
        with _placed(folder, name) as fresh:
            os.link(source[-1], fresh, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)

    def _finish_folder(self, parts: Parts, member: Member | None) -> None:
        """The mode and the time of a folder that was made: not before all that belongs into it is there."""
        with self._at(os.path.join(self._folder, *parts)):
            folder = self._opened(self._folders, parts)
            os.fchmod(folder, (member.mode if member else 0o755) & self._mode)
            if member:
                os.utime(folder, (member.mtime, member.mtime))

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[None]:
        """Says what went wrong at a path here, in words."""
        try:
            yield
        except (OSError, ValueError, OverflowError) as error:
            raise CopyFailed(_sentence(error, path)) from None


@contextlib.contextmanager
def _placed(folder: int, name: str) -> Iterator[str]:
    """Make something under this fresh name: it gets its own when it is whole."""
    fresh = f".agentless-{secrets.token_hex(8)}"
    try:
        yield fresh
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder, which a file does not replace")
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)


def forbidden_bits() -> int:
    """What the umask of this process keeps group and others from: here only to write, since a copy keeps the rest."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask & 0o022


@contextlib.contextmanager
def _noting(notes: Notes, path: str) -> Iterator[None]:
    """What cannot be read here is noted, and the rest goes on; what goes wrong elsewhere is no concern of this one."""
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
        words = "this locale has no such name; try again with LC_ALL=C.UTF-8"
    elif number in (errno.ELOOP, errno.ENOTDIR):
        words = "is in the way: it is no folder"
    elif number in (errno.ENOSPC, errno.EDQUOT):
        words = "there is no room left on the disk here"
    where = path or os.fsdecode(getattr(error, "filename", "") or "")
    return f"{shown(where)}: {words[:1].lower()}{words[1:]}"
