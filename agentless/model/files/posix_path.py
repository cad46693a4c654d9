"""Paths as text, of this machine and of containers."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence


def within(folder: str, path: str) -> str:
    """A path as seen from a folder: itself if it is absolute. Without `.` and `..`, and never with two slashes."""
    return "/" + posixpath.normpath(posixpath.join(folder, path)).lstrip("/")


def parents(path: str) -> Sequence[str]:
    """The folders above an absolute path, without `/`."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
