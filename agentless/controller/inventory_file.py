"""The inventory in force: followed when the file is edited, and kept while it is broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from agentless.errors import InventoryError, Refused
from agentless.inventory.inventory import Inventory, load, stamp_of


class InventoryFile:
    """The file that the controller serves. `trouble` is why its last version is not in force, in words."""

    def __init__(self, path: Path, follow: Callable[[Inventory], Awaitable[None]]) -> None:
        self.inventory = load(path)
        self.trouble: str | None = None
        self._follow = follow

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.inventory.path

    async def start(self) -> None:
        """Have it followed as it is."""
        await self._follow(self.inventory)

    async def use(self, wanted: str | None, *, reading: bool) -> None:
        """Follow the file when it was edited. A broken one leaves the last good one in force for reading only.

        Raises Refused where `wanted` is another file.
        """
        if wanted is not None and wanted != str(self.path):
            raise Refused(
                f"the running controller serves {self.path}, not {wanted}; run: agentless controller stop "
                "(tasks go on), or give the other inventory its own XDG_STATE_HOME"
            )
        if stamp_of(self.path) == self.inventory.stamp:
            self.trouble = None
            return
        try:
            self.inventory = load(self.path)
            self.trouble = None
            await self._follow(self.inventory)
        except InventoryError as error:
            self.trouble = f"{error} (the last good version is in force)"
            if not reading:
                raise
