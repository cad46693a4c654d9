"""Conversions of state files of older versions. They load for ever."""

from __future__ import annotations

from typing import Any


def with_needs(task: dict[str, Any]) -> dict[str, Any]:
    """Convert a task of version 1, which only had exact targets."""
    target = task.pop("target")
    task["spec"]["needs"] = {
        "gpus": len(target["gpus"]),
        "nodes": [target["node"]],
        "numa": target["numa"],
        "indices": target["gpus"],
    }
    return task
