"""A container of ours as its engine reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ContainerState = Literal["created", "running", "paused", "restarting", "removing", "exited", "dead"]
LIVE: frozenset[str] = frozenset({"created", "running", "paused", "restarting"})


@dataclass(frozen=True, slots=True)
class Container:
    """Id, name, state and labels; times are Unix seconds by the node's own clock, None when it never happened."""

    id: str
    name: str
    state: ContainerState
    labels: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def live(self) -> bool:
        """Whether it holds its GPUs."""
        return self.state in LIVE
