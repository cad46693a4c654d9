"""How a program in a container is connected to its user: the size of a terminal, the kind of its input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from agentless.errors import UsageError

ANY_SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
"""bash, or sh if there is none."""
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


class InputKind(StrEnum):
    """The input of a program in a container."""

    TERMINAL = "terminal"
    """A pseudo-terminal."""
    LINES = "lines"
    """Bytes that travel in lines, so that a broken connection is never taken for their end: the program is ended."""
    PIPE = "pipe"
    """Bytes as they are. When the connection breaks, the program may read the end of its input before it is ended."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The connection of a program: its input, the first size of its terminal, and variables for it.

    The variables show in the process list of the node.
    """

    input: InputKind
    size: Size | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def sized(cls, size: Size | None) -> Self:
        """A terminal of this size, or lines without one."""
        return cls(InputKind.LINES if size is None else InputKind.TERMINAL, size)
