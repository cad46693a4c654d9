"""The hint in messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'node1'?)` for the nearest known word, empty when none is near. Dashes in front do not count."""
    words = {each.lower().lstrip("-"): each for each in known}
    close = difflib.get_close_matches(word.lower().lstrip("-"), words)
    return f" (did you mean {words[close[0]]!r}?)" if close else ""
