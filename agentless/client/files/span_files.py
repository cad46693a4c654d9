"""The files that spans name: one value per line."""

from __future__ import annotations

import os

from agentless.errors import UsageError

_LARGEST_FILE = 16 << 20
"""Bytes of a file with values."""


def read_lines(path: str) -> list[str]:
    """The lines of a file that a span names; raises UsageError if it cannot be read."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if len(data) > _LARGEST_FILE or b"\0" in data:
        raise UsageError(f"{path} is not a text file with one value per line")
    return data.decode("utf-8-sig", "surrogateescape").split("\n")
