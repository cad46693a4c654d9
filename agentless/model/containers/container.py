"""A container with agentless labels, as its engine reports it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentless.model.tasks.task import Outcome

ContainerState = Literal["created", "queued", "running", "paused", "restarting", "removing", "exited", "dead"]
DATED_LATE = 1.0
"""Seconds by which a start may be dated after the end: an engine notes the time after the start."""
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
DOWN = 255
"""The exit code that Docker gives to a container that ran when its node went down."""
WENT_DOWN = "the node went down while it ran"
LIVE: frozenset[str] = frozenset({"created", "queued", "running", "paused", "restarting"})


@dataclass(frozen=True, slots=True)
class Container:
    """Id, name, state and labels. Times are Unix seconds by the node's clock, None if it never happened.

    One that is `queued` is a job in the queue of its cluster: `error` is why, in words, and `expected_at` when the
    cluster will start it; one that `awaits` waits for the end of other jobs. `outcome` is what a cluster calls its end,
    None for what its exit code means, and `compute_nodes` are those on which a cluster started it, as it writes them.
    `clock` is by how many seconds that clock is ahead of ours; `here()` converts a time. `signed`: the labels have a
    valid signature of this controller, see `model/containers/signature`. `doubtful`: of a job, only the number is
    known, since its name and its comment were changed, or Slurm has begun to count anew. `cores` and `memory` (bytes)
    are its limits now.
    """

    id: str
    name: str
    state: ContainerState
    labels: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    outcome: Outcome | None = None
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    expected_at: float | None = None
    awaits: bool = False
    compute_nodes: str = ""
    clock: float = 0.0
    signed: bool = False
    doubtful: bool = False
    cores: float | None = None
    memory: int | None = None

    @property
    def on_node_itself(self) -> bool:
        """Whether it is a systemd service, not a container."""
        return self.id.endswith(".service")

    @property
    def short_id(self) -> str:
        """The first 12 digits of its id, used if its labels are not trusted."""
        return hashlib.sha256(self.id.encode()).hexdigest()[:12] if self.on_node_itself else self.id[:12]

    @property
    def live(self) -> bool:
        """Whether it is live, and so holds its GPUs."""
        return self.state in LIVE

    @property
    def over(self) -> bool:
        """Whether it ran and has ended."""
        return self.state in ("exited", "dead")

    def here(self, moment: float | None) -> float | None:
        """Convert one of its times to the controller's clock."""
        return None if moment is None else moment - self.clock

    @property
    def ran(self) -> float | None:
        """Seconds from its last start to its end, by the engine. None if unknown or if its clock went back."""
        if self.started_at is None or self.finished_at is None or self.finished_at < self.started_at - DATED_LATE:
            return None
        return max(0.0, self.finished_at - self.started_at)


def is_container_id(word: str) -> bool:
    """Whether this is a container id."""
    return CONTAINER_ID.fullmatch(word) is not None
