"""What of a folder in a container has changed since its start, and is brought back."""

from __future__ import annotations

import posixpath

from agentless.model.files.posix_path import parents

MOST_PIECES = 200
"""Changed paths that are brought one by one; where there are more, their folder is brought as a whole."""
_JUNK = frozenset({"__pycache__"})
"""Folders that are never brought back with what has changed."""


def changed_paths(diff: str, folder: str) -> tuple[str, ...]:
    """What a task has made or changed below a folder, by what `docker diff` says, as paths from the folder on.

    A new folder stands for all that is in it; `.` is the folder itself. What was removed is not told. A line break in a
    name makes lines that are none: then all of the folder is meant, and no line leads elsewhere by `..`.
    """
    lines = [line.partition(" ") for line in diff.split("\n") if line]
    if any(how not in ("A", "C", "D") or posixpath.normpath(path) != path for how, _, path in lines):
        return (".",)
    touched = {path: how for how, _, path in lines if how in ("A", "C") and _is_below(path, folder)}
    above = {parent for path in touched for parent in parents(path)}
    removed = {parent for how, _, path in lines if how == "D" for parent in parents(path)}
    tops = list[str]()
    for path, how in sorted(touched.items()):
        if any(touched.get(parent) == "A" for parent in parents(path)):
            continue
        # Of a changed folder what is in it is told, too; one in which something was removed is changed by that alone.
        if how == "A" or (path not in above and path not in removed and path != folder):
            tops.append(posixpath.relpath(path, folder))
    tops = [top for top in tops if not is_junk(top)]
    return (".",) if len(tops) > MOST_PIECES else tuple(tops)


def is_junk(path: str) -> bool:
    """Whether it is nothing that somebody would want back."""
    return not _JUNK.isdisjoint(path.split("/"))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
