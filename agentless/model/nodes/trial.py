"""A container that `doctor` starts on a GPU, to see what it gets."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.command import Result
from agentless.model.nodes.check import Verdict


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """What became of one container. `launch` is the answer to its launch, `saw` what it printed.

    `took` is how many seconds the engine needed to start it. `is_late`: it did not end in its time.
    """

    launch: Result
    saw: str = ""
    took: float | None = None
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a container sees exactly its GPU, and by what that is proved."""

    verdict: Verdict
    words: str
