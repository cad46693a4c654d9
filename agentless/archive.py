"""Files as a tar stream, written and read by standard library alone: for nodes without rsync, and for containers.

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

CHUNK = 1 << 20
_MODE = 0o777
"""Of a mode: not the bits that let a program run as its owner."""
Notes = list[str]


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
        notes.append(f"{path} is neither a file nor a folder, and was left out")
    elif info.isreg():
        with open(path, "rb") as file:
            reader = Reader(file, info.size)
            archive.addfile(_plain(info), reader)
        if reader.is_short:
            notes.append(f"{path} became shorter while it was copied")
    else:
        archive.addfile(_plain(info))


def _forget(archive: tarfile.TarFile) -> None:
    """It would remember all its members, which may be millions."""
    archive.members = []  # type: ignore[attr-defined]


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode &= _MODE
    return info


class Unpacker:
    """Fills `name` in a folder here from a tar stream.

    Of the name of each member `strip` parts are left out; what is left, if anything, is below `name`.
    """

    def __init__(self, folder: str, name: str, strip: int, count: Callable[[int], None]) -> None:
        self.notes: Notes = []
        self._folder, self._name, self._strip, self._count = folder, name, strip, count
        self._written: set[tuple[str, ...]] = set()
        self._made: dict[tuple[str, ...], tarfile.TarInfo] = {}
        self._root = -1

    def unpack(self, stream: Any) -> int:
        """Read to the end; how many members there were. Raises CopyFailed, and whatever the stream raises."""
        members = 0
        with self._at(self._folder):
            self._root = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK, errorlevel=2) as archive:
                    while member := archive.next():
                        _forget(archive)
                        self._take(archive, member)
                        members += 1
            except tarfile.ReadError as error:
                if members or "empty" not in str(error):
                    raise CopyFailed(f"what came is no tar stream, or not whole: {error}") from None
            for parts, member in sorted(self._made.items(), reverse=True):
                self._finish_folder(parts, member)
        finally:
            os.close(self._root)
        return members

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = self._parts(member.name)
        path = os.path.join(self._folder, *parts)
        with self._at(path):
            if member.isdir():
                with self._folder_of((*parts, ".")) as _:
                    if parts in self._made:
                        self._made[parts] = member
                return
            with self._folder_of(parts) as folder:
                if member.isreg():
                    self._put_file(archive, member, folder, parts[-1])
                elif member.issym():
                    self._put(folder, parts[-1], lambda name: self._link(member, name, folder))
                elif member.islnk():
                    self._put_same(self._parts(member.linkname), folder, parts[-1], path)
                else:
                    self.notes.append(f"{path} would be a device or a pipe, and was left out")
                    return
        self._written.add(parts)

    def _parts(self, name: str) -> tuple[str, ...]:
        """Where a member goes, from the folder on; raises CopyFailed for one that would get out of it."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name or (name.startswith("/") and not self._strip):
            raise CopyFailed(f"what came has a member {name[:80]!r}, that leads out of {self._folder}; ended there")
        return (self._name, *parts[self._strip :])

    @contextlib.contextmanager
    def _folder_of(self, parts: tuple[str, ...]) -> Iterator[int]:
        """The folder that the last of these parts is in, made if it is not there; never reached through a link."""
        at, opened = self._root, -1
        try:
            for depth, part in enumerate(parts[:-1], 1):
                try:
                    os.mkdir(part, 0o700, dir_fd=at)
                    self._made[parts[:depth]] = tarfile.TarInfo()
                    self._made[parts[:depth]].mode = 0o755
                except FileExistsError:
                    pass
                with self._at(os.path.join(self._folder, *parts[:depth])):
                    inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                if opened >= 0:
                    os.close(opened)
                at = opened = inner
            yield at
        finally:
            if opened >= 0:
                os.close(opened)

    def _put_file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
        def write(fresh: str) -> None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            content = archive.extractfile(member)
            if content is None:
                raise AssertionError("a regular member has a content")
            with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=folder), "wb", buffering=0) as file:
                while data := content.read(CHUNK):
                    file.write(data)
                    self._count(len(data))
                os.fchmod(file.fileno(), member.mode & _MODE)
                os.utime(file.fileno(), (member.mtime, member.mtime))

        self._put(folder, name, write)

    def _link(self, member: tarfile.TarInfo, fresh: str, folder: int) -> None:
        os.symlink(member.linkname, fresh, dir_fd=folder)
        os.utime(fresh, (member.mtime, member.mtime), dir_fd=folder, follow_symlinks=False)

    def _put_same(self, source: tuple[str, ...], folder: int, name: str, path: str) -> None:
        """Another name of a file that was put here before."""
        if source not in self._written:
            raise CopyFailed(f"what came has a link from {path} to a file that it has not brought; ended there")
        with self._folder_of(source) as there:
            self._put(
                folder,
                name,
                lambda fresh: os.link(source[-1], fresh, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False),
            )

    def _put(self, folder: int, name: str, make: Callable[[str], None]) -> None:
        """Make something under a name of its own, and give it its name when it is whole."""
        fresh = f".agentless-{secrets.token_hex(8)}"
        try:
            make(fresh)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "is a folder, which a file does not replace")
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=folder)

    def _finish_folder(self, parts: tuple[str, ...], member: tarfile.TarInfo) -> None:
        """The mode and the time of a folder that was made: not before all that belongs into it is there."""
        with self._at(os.path.join(self._folder, *parts)), self._folder_of((*parts, ".")) as folder:
            os.fchmod(folder, member.mode & _MODE)
            if member.name:
                os.utime(folder, (member.mtime, member.mtime))

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[None]:
        """Says what went wrong at a path here, in words."""
        try:
            yield
        except (OSError, ValueError, OverflowError) as error:
            raise CopyFailed(_sentence(error, path)) from None


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
    if number in (errno.ELOOP, errno.ENOTDIR):
        words = "is in the way: it is no folder"
    elif number in (errno.ENOSPC, errno.EDQUOT):
        words = "there is no room left on the disk here"
    where = path or os.fsdecode(getattr(error, "filename", "") or "")
    return f"{where}: {words[:1].lower()}{words[1:]}"
