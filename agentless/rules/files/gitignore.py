"""What `.gitignore` files leave out of an upload, as git reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec


class Ignored:
    """The rules of a folder and of all folders above it: the deepest that says something about a path is right.

    `folder` is the folder's path from the top on, with a slash at its end, empty for the top.
    """

    def __init__(self, lines: Iterable[str] = (), folder: str = "", above: Ignored | None = None) -> None:
        self._spec = _spec(list(lines))
        self._folder = folder
        self._above = above

    def below(self, lines: Iterable[str], folder: str) -> Ignored:
        """With the rules of a folder below."""
        return Ignored(lines, folder, self)

    def has(self, path: str, *, folder: bool = False) -> bool:
        """Whether a path from the top on is left out; of what is in a folder that is, nothing is asked."""
        said = self._spec.check_file(path.removeprefix(self._folder) + "/" * folder).include
        if said is None:
            return self._above is not None and self._above.has(path, folder=folder)
        return said


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The patterns; what is none, like `[z-a]`, matches nothing to git either."""
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
