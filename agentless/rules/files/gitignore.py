"""Files that `.gitignore` excludes from an upload, by the rules of git."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec


class Ignored:
    """The rules of a folder and of all folders above it. The deepest folder with a matching rule decides.

    `folder` is the folder's path from the top on, with a slash at its end, empty for the top.
    """

    def __init__(self, lines: Iterable[str] = (), folder: str = "", above: Ignored | None = None) -> None:
        self._spec = _spec(list(lines))
        self._folder = folder
        self._above = above

    def below(self, lines: Iterable[str], folder: str) -> Ignored:
        """Add the rules of a subfolder."""
        return Ignored(lines, folder, self)

    def has(self, path: str, *, folder: bool = False) -> bool:
        """Whether a path, relative to the top, is excluded. Paths within an excluded folder are never asked for."""
        said = self._spec.check_file(path.removeprefix(self._folder) + "/" * folder).include
        if said is None:
            return self._above is not None and self._above.has(path, folder=folder)
        return said


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The patterns. An invalid one, like `[z-a]`, matches nothing, as in git."""
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (re.error, ValueError):
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except (re.error, ValueError):
        return False
    return True
