"""A request to submit tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentless.model.caller import Caller
from agentless.model.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Submit:
    """One request: each spec becomes a task, all of them one batch.

    `by` is who asks, and `owner` whose they are, None: the caller's. `name` is the request's own, if it has one;
    `repeated`: it was sent before, and the answer was lost. `each`: each task waits for one task of a required batch.
    `whole`: none is submitted if one is refused; each gets those of the secrets that its spec names. `ids` are those
    that the tasks have already, and `batch` is theirs, when a workflow goes on whose state was lost.
    """

    specs: tuple[TaskSpec, ...]
    secrets: Mapping[str, str]
    by: Caller
    dry_run: bool = False
    owner: str | None = None
    name: str | None = None
    repeated: bool = False
    each: bool = False
    whole: bool = False
    ids: tuple[str, ...] = ()
    batch: str | None = None
