"""Overflow: clusters that take tasks which no node can start in time."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.errors import UsageError
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.needs import NODE_NAME, Needs

NEVER = "none"
"""Typed instead of clusters: the task stays on nodes."""
AFTER = 30 * 60.0


@dataclass(frozen=True, slots=True)
class Overflow:
    """The clusters that take tasks which would wait longer than `after` (seconds) for nodes, the preferred ones first.

    A task can name others.
    """

    clusters: tuple[str, ...] = ()
    after: float = AFTER


@dataclass(frozen=True, slots=True)
class AskedOfNodes:
    """What a task that was handed over to a cluster had asked of nodes."""

    needs: Needs
    container: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A cluster did not take the job of a task: it is not asked again while the inventory has it as this `config`.

    `reason` is a sentence. `until` is when it may be asked again all the same (Unix seconds), None for never.
    """

    cluster: str
    config: SlurmCluster
    reason: str
    until: float | None = None


def parse_overflow(text: str) -> tuple[str, ...]:
    """Parse clusters separated by commas, or `none`. Raises UsageError."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if found == (NEVER,):
        return ()
    for part in found:
        if part == NEVER:
            raise UsageError(f"--overflow {NEVER} cannot be combined with clusters; use one of them")
        if not NODE_NAME.fullmatch(part):
            raise UsageError(f"--overflow {part[:80]!r}: use names of clusters, like hpc, or {NEVER}")
    return found
