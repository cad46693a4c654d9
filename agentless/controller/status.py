"""The controller's own status, as it is published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentless import __version__
from agentless.controller.nodes.registry import Nodes
from agentless.controller.served_inventory import ServedInventory
from agentless.controller.state.tasks import Tasks
from agentless.model.view import ControllerView
from agentless.ports import Clock
from agentless.rules.views.publish import timestamp


class Troubled(Protocol):
    """A part that can report a problem."""

    @property
    def trouble(self) -> str | None:
        """The current problem, None if there is none."""


@dataclass(frozen=True, slots=True)
class AtStart:
    """A problem that was found at the start, and that lasts."""

    trouble: str | None


class Status:
    """Describes the controller; `parts` report problems."""

    def __init__(
        self,
        state: Path,
        inventory: ServedInventory,
        tasks: Tasks,
        nodes: Nodes,
        parts: Sequence[Troubled],
        clock: Clock,
    ) -> None:
        self._state = state
        self._inventory = inventory
        self._tasks = tasks
        self._nodes = nodes
        self._parts = parts
        self._started_at = clock.now()

    def describe(self) -> ControllerView:
        """The status."""
        return ControllerView(
            version=__version__,
            pid=os.getpid(),
            inventory=str(self._inventory.path),
            state_dir=str(self._state),
            started_at=timestamp(self._started_at) or "",
            live_tasks=len(self._tasks.live),
            nodes=len(self._nodes.links),
            warnings=self.warnings(),
        )

    def warnings(self) -> tuple[str, ...]:
        """All current warnings."""
        return tuple(filter(None, (part.trouble for part in self._parts)))

    def warning(self) -> str | None:
        """All current warnings in one line, None if there are none."""
        return "; ".join(self.warnings()) or None
