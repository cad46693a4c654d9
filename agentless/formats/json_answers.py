"""JSON that a program prints, with whatever it says before and after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TRIES = 20
"""Lines that may begin the JSON: a warning may begin with a bracket, too."""
_TRIED = 4 << 20
"""Characters that are read in vain: each line may begin what has no end."""


def first_json(text: str) -> tuple[Any, str]:
    """The first whole JSON object or list in the text, and what is around it; None if there is none, or it was cut."""
    decoder, tries, tried, at = json.JSONDecoder(), 0, 0, 0
    for line in text.splitlines(keepends=True):
        if line.lstrip()[:1] in ("{", "["):
            tries += 1
            begin = at + len(line) - len(line.lstrip())
            try:
                value, end = decoder.raw_decode(text, begin)
            except (ValueError, RecursionError) as error:
                tried += (error.pos if isinstance(error, json.JSONDecodeError) else len(text)) - begin
                if tries >= _TRIES or tried >= _TRIED:
                    break
            else:
                return value, f"{text[:begin]} {text[end:]}"
        at += len(line)
    return None, text


def mapping(value: Any) -> Mapping[str, Any]:
    """The object itself, an empty one for anything else."""
    return value if isinstance(value, dict) else {}
