"""The place of a task in a workflow."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentless.errors import UsageError

OnFailure = Literal["stop", "continue"]
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
HOW_TO_NAME = "up to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit"


@dataclass(frozen=True, slots=True)
class Job:
    """A task is the job `name` of a workflow, or one of its tasks if that job has several.

    `workflow` is the workflow's id: that of its first task, and of its batch. `of` is the workflow's name. `on_failure`
    says what a failure of this task means for the others. `artifacts` are paths in its container that jobs which
    require it get. `tasks` is how many tasks the workflow has, 0 if that is unknown.
    """

    name: str
    of: str
    on_failure: OnFailure = "continue"
    workflow: str = ""
    artifacts: tuple[str, ...] = ()
    tasks: int = 0


def check_artifacts(paths: Sequence[str]) -> None:
    """Raise UsageError for a path that cannot be one, and for a name that two have."""
    names = set[str]()
    for path in paths:
        name = posixpath.basename(posixpath.normpath(path))
        if ":" in path or "\0" in path or name in ("", ".", ".."):
            raise UsageError(f"{path[:60]!r} is not the path of a file or folder, like model or out/log.txt")
        if name in names:
            raise UsageError(f"two artifacts have the name {name[:60]}; keep one")
        names.add(name)


def check_job(job: Job) -> None:
    """Raise UsageError for a name that cannot be one, and for such artifacts."""
    check_artifacts(job.artifacts)
    for name in (job.name, job.of):
        if not JOB_NAME.fullmatch(name):
            raise UsageError(f"{name[:80]!r} is not the name of a job or workflow; use {HOW_TO_NAME}")
