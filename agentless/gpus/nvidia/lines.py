"""The answer of the probe, which has several of nvidia-smi's with a mark behind each."""

from __future__ import annotations

from collections.abc import Sequence

ANSWERED = frozenset({"0", "14"})
"""Exit codes of an answer. 14: the GPU's infoROM is damaged; the readings are there all the same."""


def until(lines: Sequence[str], mark: str) -> tuple[Sequence[str], str | None, Sequence[str]]:
    """The lines before the mark, the word behind it, the lines after it. Without it, the last line is not whole."""
    for at, line in enumerate(lines):
        if line.startswith(mark):
            return lines[:at], line[len(mark) :], lines[at + 1 :]
    return lines[:-1], None, ()
