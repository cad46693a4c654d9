"""A request to submit tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentless.model.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Submit:
    """One request: each spec becomes a task, all of them one batch.

    `owner` is whose they are and `by` who asks, None: the controller's own. `name` is the request's own, if it has one;
    `repeated`: it was sent before, and the answer was lost.
    """

    specs: tuple[TaskSpec, ...]
    secrets: Mapping[str, str]
    dry_run: bool = False
    owner: str | None = None
    by: str | None = None
    name: str | None = None
    repeated: bool = False
