"""A folder as the context of a build: a tar archive, made while it is sent."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from agentless.errors import UsageError
from agentless.model.files.task_files import MOST_LEVELS
from agentless.rules.images.dockerignore import DOCKERIGNORE, Ignore

CHUNK = 256 * 1024


def dockerfile_of(folder: Path, named: Path | None) -> tuple[str, str]:
    """The path of the Dockerfile in the context, and its text. One outside of the context is sent along.

    Raises UsageError when there is none.
    """
    path = named or folder / "Dockerfile"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{path} cannot be read: {why}; name the Dockerfile with -f") from None
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix(), text
    except ValueError:
        return ".agentless.dockerfile", text


def packed(folder: Path, dockerfile: str, text: str) -> Iterator[bytes]:
    """The archive of a folder without what its `.dockerignore` leaves out, and with the Dockerfile in any case."""
    ignore = Ignore.read(_lines(folder / DOCKERIGNORE))
    sent = False
    for path, name in _walked(folder, ignore, {dockerfile, DOCKERIGNORE}):
        sent = sent or name == dockerfile
        yield from _member(path, name)
    if not sent:
        data = text.encode()
        info = tarfile.TarInfo(dockerfile)
        info.size = len(data)
        yield info.tobuf() + data + bytes(-len(data) % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def _walked(folder: Path, ignore: Ignore, always: set[str]) -> Iterator[tuple[Path, str]]:
    for here, folders, files in os.walk(folder, onerror=_refuse):
        inside = Path(here).relative_to(folder)
        if len(inside.parts) > MOST_LEVELS:
            raise UsageError(
                f"{folder} has more than {MOST_LEVELS} folders below each other; leave them out in {DOCKERIGNORE}"
            )
        kept = []
        for name in sorted(folders):
            path = (inside / name).as_posix()
            out = ignore.leaves_out(path)
            if not out:
                yield Path(here, name), path
            needed = ignore.takes_back or any(each.startswith(f"{path}/") for each in always)
            if not Path(here, name).is_symlink() and (not out or needed):
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            path = (inside / name).as_posix()
            if path in always or not ignore.leaves_out(path):
                yield Path(here, name), path


def _refuse(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}; leave it out in {DOCKERIGNORE}")


def _member(path: Path, name: str) -> Iterator[bytes]:
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif not stat.S_ISREG(status.st_mode):
        return  # sockets and the like are nothing to build from
    else:
        info.size = status.st_size
    yield info.tobuf(errors="surrogateescape")
    if info.size:
        yield from _content(path, info.size)


def _content(path: Path, size: int) -> Iterator[bytes]:
    """As many bytes as were announced, whatever happens to the file meanwhile."""
    left = size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    if padding := left + (-size % tarfile.BLOCKSIZE):
        yield bytes(padding)
