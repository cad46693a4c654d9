"""The controller's own status, as it is published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from agentless import __version__
from agentless.controller.inventory_file import InventoryFile
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.tasks import Tasks
from agentless.model.view import ControllerView
from agentless.rules.views.publish import timestamp


class Troubled(Protocol):
    """A part that can report a problem."""

    @property
    def trouble(self) -> str | None:
        """The current problem, None if there is none."""


class Status:
    """Describes the controller. `warnings` were found at the start; `parts` report current problems."""

    def __init__(
        self,
        state: Path,
        inventory: InventoryFile,
        tasks: Tasks,
        nodes: Nodes,
        warnings: Sequence[str],
        parts: Sequence[Troubled],
        started_at: float,
    ) -> None:
        self._state = state
        self._inventory = inventory
        self._tasks = tasks
        self._nodes = nodes
        self._warnings = tuple(warnings)
        self._parts = parts
        self._started_at = started_at

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
        return *self._warnings, *filter(None, (part.trouble for part in (self._inventory, *self._parts)))

    def warning(self) -> str | None:
        """All current warnings in one line, None if there are none."""
        return "; ".join(self.warnings()) or None
