"""What several of these verbs need."""

from __future__ import annotations

from pathlib import Path

import typer

from agentless import paths
from agentless.errors import InventoryError


def inventory_or_none(context: typer.Context) -> Path | None:
    """The inventory with which a controller would be started; None if there is none, as a running one needs none."""
    try:
        return paths.find_inventory(context.find_root().obj)
    except InventoryError:
        return None
