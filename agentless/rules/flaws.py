"""Why GPUs of a node will not do, in words: what is the same for several of them is said once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why one GPU will not do: `GPU 0`, the verb (`is` or `has`), and then these words.

    A `lasting` one stays there when everything that runs has ended.
    """

    index: int
    verb: str
    words: str
    lasting: bool = False


def say(flaws: Iterable[Flaw]) -> tuple[str, ...]:
    """All of them in words."""
    groups: dict[tuple[str, str], list[int]] = {}
    for flaw in flaws:
        groups.setdefault((flaw.verb, flaw.words), []).append(flaw.index)
    plural = {"is": "are", "has": "have"}
    return tuple(
        f"GPU {indices[0]} {verb} {words}" if len(indices) == 1 else f"GPUs {_ranges(indices)} {plural[verb]} {words}"
        for (verb, words), indices in groups.items()
    )


def _ranges(indices: Iterable[int]) -> str:
    """`0-3,6` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
