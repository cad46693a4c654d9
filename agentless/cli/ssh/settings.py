"""What several of these verbs need."""

from __future__ import annotations

from pathlib import Path

import typer

from agentless import paths
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.errors import InventoryError, Refused

ENV = ".env"
"""Ends the host name of a build container."""


def inventory_or_none(context: typer.Context) -> Path | None:
    """The inventory with which a controller would be started; None if there is none, as a running one needs none."""
    try:
        return paths.find_inventory(context.find_root().obj)
    except InventoryError:
        return None


def why_unreachable(served: Client, task: str) -> str:
    """Why a task cannot be reached yet; empty if it can, as for a cluster. Raises Refused for one that has ended."""
    if task.endswith(ENV):
        return ""
    try:
        found = served.get(f"/v1/tasks/{task}")
    except RequestFailed as error:
        if error.error == "NotFound" and any(cluster["name"] == task for cluster in served.get("/v1/clusters")):
            return ""
        raise
    if found["state"] == "running":
        return ""
    words = f"task {task} is {found['state']}"
    if found["ended_at"] is not None:
        raise Refused(f"{words}; only running tasks can be reached")
    return words
