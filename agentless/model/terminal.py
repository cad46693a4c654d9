"""The size of a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from agentless.errors import UsageError

_SIZE = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class Size:
    """Columns and rows of characters, 1 to 9999; written `80x24`."""

    columns: int
    rows: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a size. Raises UsageError."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise UsageError(f"{text[:80]!r} is not a terminal size; use COLUMNSxROWS, like 80x24")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.columns}x{self.rows}"
