"""Pseudo-terminals: one end here, a program with a session of its own on the other."""

from __future__ import annotations

import os
import termios
from collections.abc import Sequence
from contextlib import suppress

_TAKE = 'exec <>"$0" >&0 2>&0; exec "$@"'
"""The terminal that the leader of a session opens becomes its own."""


class PseudoTerminal:
    """A pseudo-terminal. `theirs` is the program's end, to be closed when the program has it."""

    def __init__(self, columns: int, rows: int) -> None:
        ours, self.theirs = os.openpty()
        os.set_blocking(ours, False)
        self.output = os.fdopen(ours, "rb", buffering=0)
        self.input = os.fdopen(os.dup(ours), "wb", buffering=0)
        self.resize(columns, rows)

    def words(self, argv: Sequence[str]) -> list[str]:
        """The words that start a program which has it."""
        return ["sh", "-c", _TAKE, os.ttyname(self.theirs), *argv]

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size, unless it was hung up."""
        with suppress(termios.error, ValueError):
            termios.tcsetwinsize(self.output.fileno(), (rows, columns))
