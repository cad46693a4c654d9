"""A list of containers that a node has reported."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from agentless.model.containers.container import Container


@dataclass(frozen=True, slots=True)
class Sighting:
    """The reported containers of agentless. `asked_at` is when the question was sent (Unix seconds).

    `only` is the task whose container was asked for, None for all tasks. If `blind`, systemd did not answer, so tasks
    without a container may be missing. `about` are the ids of the containers that were asked for, None for any. The
    absence of a container means nothing if it was not asked for.
    """

    containers: tuple[Container, ...]
    asked_at: float
    only: str | None = None
    blind: bool = False
    about: Collection[str] | None = None
