"""Which paths of a folder in a container have changed since its start."""

from __future__ import annotations

import posixpath

from agentless.model.files.posix_path import parents

MOST_PIECES = 200
"""The most changed paths that are fetched one by one. With more, the whole folder is fetched."""
_JUNK = frozenset({"__pycache__"})
"""Folders that are never fetched as changed output."""


def changed_paths(diff: str, folder: str) -> tuple[str, ...]:
    """The paths that a task has created or changed below a folder, relative to it, from the output of `docker diff`.

    A new folder stands for everything in it, and `.` for the folder itself. Removed paths are left out. A name with a
    line break makes invalid lines: then the whole folder is returned, and no line can lead elsewhere by `..`.
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
        # Docker also lists what is in a changed folder. A folder whose only change is a removal is skipped.
        if how == "A" or (path not in above and path not in removed and path != folder):
            tops.append(posixpath.relpath(path, folder))
    tops = [top for top in tops if not is_junk(top)]
    return (".",) if len(tops) > MOST_PIECES else tuple(tops)


def is_junk(path: str) -> bool:
    """Whether the path is in a folder that is never fetched."""
    return not _JUNK.isdisjoint(path.split("/"))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
