"""What a node has said of its containers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from agentless.model.tasks.container import Container


@dataclass(frozen=True, slots=True)
class Sighting:
    """The containers of ours that a node named. `asked_at` is when the question left (Unix seconds).

    `only` is the task whose container was asked for, None when it was all of them: the absence of others says nothing.
    Nor does that of what runs without a container when `blind`: systemd did not answer. `about` are the ids of the
    containers that were asked for, None when it was whatever the task has: of another one its absence says nothing.
    """

    containers: tuple[Container, ...]
    asked_at: float
    only: str | None = None
    blind: bool = False
    about: Collection[str] | None = None
