"""Why GPUs of a node do not match, in words. GPUs with the same reason share a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentless.model.units import format_indices


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why one GPU does not match. The sentence is `GPU {index} {verb} {words}`, with `is` or `has` as the verb.

    A `lasting` flaw remains when all running tasks have ended.
    """

    index: int
    verb: str
    words: str
    lasting: bool = False


def flaw_sentences(flaws: Iterable[Flaw]) -> tuple[str, ...]:
    """The flaws as sentences."""
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
