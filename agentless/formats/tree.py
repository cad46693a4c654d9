"""Fills a folder with files, folders and links from an untrusted archive.

No name leads out of the folder: each folder of a path is opened from the one above it, and never through a link. A file
or link is created under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator

from agentless.formats.tar import Member, Parsing, Tar

_HOLE = 1 << 16
"""A block of so many zeros becomes a hole."""
_ZEROS = bytes(_HOLE)
Parts = tuple[str, ...]
Seen = Callable[[int, bytes], None]
"""Called with the content of a file in order: the length of a hole, or bytes."""


class NotAFolder(OSError):
    """A part of the path, `filename`, is not a folder."""


class Tree:
    """Fills the folder that is open as `top`. All methods raise OSError, and NotAFolder for a part of a path.

    Paths are tuples of names. `made` is called with each new folder.
    """

    def __init__(self, top: int, made: Callable[[Parts], object] = lambda _: None) -> None:
        self._folders, self._sources = _Folders(top, made), _Folders(top, made)

    def folder(self, path: Parts) -> int:
        """Open a folder, and create it if missing. It stays open until the next call of any method."""
        return self._folders.open(path)

    def file(
        self, path: Parts, tar: Tar, member: Member, *, mode: int, mtime: float | None, seen: Seen
    ) -> Parsing[None]:
        """Write the content of the current member. `seen` is called with it."""
        folder = self._folders.open(path[:-1])
        with _placed(folder, path[-1]) as fresh:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
            try:
                yield from _write_content(tar, member, file, seen)
                os.fchmod(file, mode)
                if mtime is not None:
                    os.utime(file, (mtime, mtime))
            finally:
                os.close(file)

    def link(self, path: Parts, target: str, mtime: float | None = None) -> None:
        """Make a symbolic link."""
        folder = self._folders.open(path[:-1])
        with _placed(folder, path[-1]) as fresh:
            os.symlink(target, fresh, dir_fd=folder)
            if mtime is not None:
                os.utime(fresh, (mtime, mtime), dir_fd=folder, follow_symlinks=False)

    def hard_link(self, path: Parts, source: Parts) -> None:
        """Make a hard link to a file in the tree."""
        folder, there = self._folders.open(path[:-1]), self._sources.open(source[:-1])
        with _placed(folder, path[-1]) as fresh:
            os.link(source[-1], fresh, src_dir_fd=there, dst_dir_fd=folder, follow_symlinks=False)

    def close(self) -> None:
        """Close all folders below `top`."""
        self._folders.close()
        self._sources.close()


class _Folders:
    """Folders below `top`. The last one stays open, since files of a folder mostly follow each other."""

    def __init__(self, top: int, made: Callable[[Parts], object]) -> None:
        self._top, self._made = top, made
        self._parts: Parts = ()
        self._opened = -1

    def open(self, parts: Parts) -> int:
        """Open this folder until the next call, and create it if missing."""
        if ".." in parts:
            raise NotAFolder(errno.EINVAL, "leads elsewhere", "/".join(parts))
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
                raise NotAFolder(error.errno, error.strerror, "/".join(parts[:depth])) from None
            self.close()
            self._opened, self._parts = inner, parts[:depth]
        return self._opened if self._opened >= 0 else self._top

    def close(self) -> None:
        """Close the last folder."""
        if self._opened >= 0:
            os.close(self._opened)
        self._opened, self._parts = -1, ()


def _write_content(tar: Tar, member: Member, file: int, seen: Seen) -> Parsing[None]:
    """Write the content of a member to an empty file, with holes for zeros."""
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
                write_at(file, piece, offset + start)

    yield from tar.content(take)
    if member.size > end:
        seen(member.size - end, b"")
    os.ftruncate(file, member.size)


def write_at(file: int, data: bytes, offset: int) -> None:
    """Write all of the data."""
    left = memoryview(data)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written


@contextlib.contextmanager
def _placed(folder: int, name: str) -> Iterator[str]:
    """Create something under a temporary name, and rename it when it is complete."""
    fresh = f".agentless-{secrets.token_hex(8)}"
    try:
        yield fresh
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder; a file cannot replace it")
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
