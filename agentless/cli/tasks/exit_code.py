"""The exit code of a command that waited for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ENDED = {"timeout": 124, "stopped": 143, "killed": 137, "preempted": 143}
"""The exit codes, as in a shell, of tasks that were ended and then returned 0."""


def own_code(task: dict[str, Any]) -> int:
    """The exit code of an ended task; a task without one has failed, unless its state says otherwise.

    A task that was stopped or killed is no success, whatever its program returned, nor is one whose outputs did not
    arrive.
    """
    code: int | None = task["exit_code"]
    if task["state"] != "completed":
        return code or (1 if code is None else ENDED.get(task["state"], 1))
    return code or int(any(output["state"] in ("missing", "stuck") for output in task.get("outputs") or ()))


def worst(tasks: Sequence[dict[str, Any]]) -> int:
    """The first exit code that is not 0."""
    return next(filter(None, map(own_code, tasks)), 0)
