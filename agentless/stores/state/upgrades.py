"""What versions before this one have written, as this one reads it. Old files load for ever."""

from __future__ import annotations

from typing import Any


def with_needs(task: dict[str, Any]) -> dict[str, Any]:
    """A task of version 1, which knew exact targets only, each in a place of its own."""
    target = task.pop("target")
    task["spec"]["needs"] = {
        "gpus": len(target["gpus"]),
        "nodes": [target["node"]],
        "numa": target["numa"],
        "indices": target["gpus"],
    }
    return task
