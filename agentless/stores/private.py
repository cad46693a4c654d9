"""Keeps the state folder private: files are 0600 and folders 0700, whatever the umask."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from agentless.errors import StateError
from agentless.paths import make_private


def make(path: Path) -> None:
    """Create an empty private file unless it exists. Errors are ignored: the following write reports them."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


@contextlib.contextmanager
def explained(failure: str) -> Iterator[None]:
    """Raise StateError for what the file system refuses: the failure in words, and why."""
    try:
        yield
    except OSError as error:
        raise StateError(f"{failure}: {error.strerror}") from None


def fresh(path: Path, content: bytes) -> Path:
    """Write a new file beside this one, synced to disk, which may replace it.

    Raises OSError, and then leaves nothing behind.
    """
    new = path.with_name(path.name + ".new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # left by a crash
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return new


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def tighten(folder: Path) -> None:
    """Make the folder and everything in it private, since early versions did not. Links are not followed.

    Raises StateError if there are files of other users.
    """
    make_private(folder)
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            with contextlib.suppress(FileNotFoundError):
                if (owner := os.lstat(path).st_uid) != os.getuid():
                    raise StateError(f"{path} belongs to user {owner}, not to you; check it and move it away")
        for name in folders:
            _set(Path(here, name), 0o700)
        for name in files:
            _set(Path(here, name), 0o600)


def _set(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):  # gone meanwhile, or owned by another user
        found = os.lstat(path).st_mode
        if not stat.S_ISLNK(found) and stat.S_IMODE(found) != mode:
            path.chmod(mode)
