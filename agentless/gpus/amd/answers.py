"""JSON that AMD's tools print, with whatever they say before and after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TRIES = 20
"""Lines that may begin the JSON: a warning may begin with a bracket, too."""


def found(text: str) -> Any:
    """The first whole JSON object or list in the text; None if there is none, or if it was cut off."""
    decoder, tries, at = json.JSONDecoder(), 0, 0
    for line in text.splitlines(keepends=True):
        if line.lstrip()[:1] in ("{", "["):
            tries += 1
            try:
                return decoder.raw_decode(text, at + len(line) - len(line.lstrip()))[0]
            except (ValueError, RecursionError):
                if tries >= _TRIES:
                    return None
        at += len(line)
    return None


def mapping(value: Any) -> Mapping[str, Any]:
    """The object itself, an empty one for anything else."""
    return value if isinstance(value, dict) else {}
