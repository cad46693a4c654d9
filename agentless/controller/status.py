"""The controller as it is published: what it serves, and what is wrong with it."""

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
    """A part that may be in trouble."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with it, in words."""


class Status:
    """Puts it together. `warnings` are those of the start, and `parts` what may be in trouble now."""

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
        """The controller itself."""
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
        """What somebody ought to know who asks for anything."""
        return *self._warnings, *filter(None, (part.trouble for part in (self._inventory, *self._parts)))

    def warning(self) -> str | None:
        """All of that as one."""
        return "; ".join(self.warnings()) or None
