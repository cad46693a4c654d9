"""Why GPUs of a node do not match, in words. GPUs with the same reason share a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentless.model.nodes.device import GpuNumber, parts_of
from agentless.model.units import format_indices


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why one GPU does not match. The sentence is `GPU {number} {verb} {words}`, with `is` or `has` as the verb.

    A `lasting` flaw remains when all running tasks have ended.
    """

    number: GpuNumber
    verb: str
    words: str
    lasting: bool = False


def flaw_sentences(flaws: Iterable[Flaw]) -> tuple[str, ...]:
    """The flaws as sentences."""
    groups: dict[tuple[str, str], list[GpuNumber]] = {}
    for flaw in flaws:
        groups.setdefault((flaw.verb, flaw.words), []).append(flaw.number)
    plural = {"is": "are", "has": "have"}
    return tuple(
        f"GPU {numbers[0]} {verb} {words}"
        if len(numbers) == 1
        else f"GPUs {format_indices(sorted(numbers, key=parts_of))} {plural[verb]} {words}"
        for (verb, words), numbers in groups.items()
    )
