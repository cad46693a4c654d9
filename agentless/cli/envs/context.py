"""A folder as the context of a build: a tar archive that is made while it is sent."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from agentless.errors import UsageError
from agentless.formats import tar_writing
from agentless.model.files.upload_limits import MOST_LEVELS
from agentless.rules.images.dockerignore import DOCKERIGNORE, Ignore

CHUNK = 256 * 1024


def dockerfile_of(folder: Path, named: Path | None) -> tuple[str, str]:
    """The path of the Dockerfile in the context, and its text. One outside of the context is sent along.

    Raises UsageError if there is none.
    """
    path = named or folder / "Dockerfile"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{path} cannot be read: {why}; specify the Dockerfile with -f") from None
    try:
        return path.resolve().relative_to(folder.resolve()).as_posix(), text
    except ValueError:
        return ".agentless.dockerfile", text


def packed(folder: Path, dockerfile: str, text: str) -> Iterator[bytes]:
    """The archive of a folder, without what its `.dockerignore` excludes, and always with the Dockerfile."""
    ignore = Ignore.read(_lines(folder / DOCKERIGNORE))
    sent = False
    for path, name in _walked(folder, ignore, {dockerfile, DOCKERIGNORE}):
        sent = sent or name == dockerfile
        yield from _member(path, name)
    if not sent:
        yield tar_writing.file(dockerfile, text.encode())
    yield tar_writing.END


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None


def _walked(folder: Path, ignore: Ignore, always: set[str]) -> Iterator[tuple[Path, str]]:
    for here, folders, files in os.walk(folder, onerror=_refuse):
        inside = Path(here).relative_to(folder)
        if len(inside.parts) > MOST_LEVELS:
            raise UsageError(
                f"{folder} has more than {MOST_LEVELS} nested folders; exclude some of them in {DOCKERIGNORE}"
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
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}; exclude it in {DOCKERIGNORE}")


def _member(path: Path, name: str) -> Iterator[bytes]:
    status = path.lstat()
    header = partial(tar_writing.header, name, mode=stat.S_IMODE(status.st_mode), mtime=int(status.st_mtime))
    if stat.S_ISLNK(status.st_mode):
        yield header("link", link=str(path.readlink()))
    elif stat.S_ISDIR(status.st_mode):
        yield header("folder")
    elif stat.S_ISREG(status.st_mode):  # sockets and the like are nothing to build from
        yield header("file", status.st_size)
        yield from _content(path, status.st_size)


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Exactly as many bytes as announced, even if the file changes meanwhile."""
    left = size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    if rest := bytes(left) + tar_writing.padding(size):
        yield rest
