"""Paths as text, of this machine and of containers."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence


def within(folder: str, path: str) -> str:
    """The absolute path of `path` as seen from a folder, without `.`, `..` and double slashes."""
    return "/" + posixpath.normpath(posixpath.join(folder, path)).lstrip("/")


def parents(path: str) -> Sequence[str]:
    """The folders above an absolute path, without `/`."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts))]
