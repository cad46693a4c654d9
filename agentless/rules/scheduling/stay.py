"""The place of a task that others wait for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentless.rules.scheduling.timeline.gpu import GpuTimeline
from agentless.rules.scheduling.timeline.node import NodeTimeline


@dataclass(frozen=True, slots=True)
class Stay:
    """The place of a task, and until when it has it (Unix seconds). `node` is None if the node is gone.

    `sure` is False if the end is only an estimate.
    """

    end: float
    node: NodeTimeline | None = None
    gpus: Sequence[GpuTimeline] = ()
    sure: bool = True


UNKNOWN = Stay(math.inf)
"""The place of a task of which nobody knows when it starts, or when it ends."""
