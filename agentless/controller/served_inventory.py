"""The inventory file: reloaded when it is edited; while it is invalid, the last valid version stays in force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from agentless.errors import InventoryError, Refused
from agentless.inventory.inventory import Inventory, load, stamp_of


class ServedInventory:
    """The inventory that the controller serves. `trouble` is why the current file is not in force."""

    def __init__(self, path: Path, follow: Callable[[Inventory], Awaitable[None]]) -> None:
        self.inventory = load(path)
        self.trouble: str | None = None
        self._follow = follow

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.inventory.path

    async def start(self) -> None:
        """Put the version loaded at the start in force."""
        await self._follow(self.inventory)

    async def use(self, wanted: str | None, *, reading: bool) -> None:
        """Reload the file if it was edited. While it is invalid, only requests that read are served.

        Raises Refused if `wanted` is another file.
        """
        if wanted is not None and wanted != str(self.path):
            raise Refused(
                f"the running controller uses {self.path}, not {wanted}; run: agentless controller stop (tasks keep "
                "running), or set XDG_STATE_HOME to another folder for this inventory"
            )
        if stamp_of(self.path) == self.inventory.stamp:
            self.trouble = None
            return
        try:
            self.inventory = load(self.path)
            self.trouble = None
            await self._follow(self.inventory)
        except InventoryError as error:
            self.trouble = f"{error} (still using the last valid version)"
            if not reading:
                raise
