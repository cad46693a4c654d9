"""Why GPUs of a node will not do, in words: what is the same for several of them is said once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentless.model.units import format_indices


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why one GPU will not do: `GPU 0`, the verb (`is` or `has`), and then these words.

    A `lasting` one stays there when everything that runs has ended.
    """

    index: int
    verb: str
    words: str
    lasting: bool = False


def flaw_sentences(flaws: Iterable[Flaw]) -> tuple[str, ...]:
    """All of them in words."""
    groups: dict[tuple[str, str], list[int]] = {}
    for flaw in flaws:
        groups.setdefault((flaw.verb, flaw.words), []).append(flaw.index)
    plural = {"is": "are", "has": "have"}
    return tuple(
        f"GPU {indices[0]} {verb} {words}"
        if len(indices) == 1
        else f"GPUs {format_indices(sorted(indices))} {plural[verb]} {words}"
        for (verb, words), indices in groups.items()
    )
