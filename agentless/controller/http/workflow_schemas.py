"""What the API takes about workflows: the bodies of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

from agentless.controller.submit.request import Submit
from agentless.errors import UsageError
from agentless.model.caller import Caller
from agentless.model.tasks.job import Job, OnFailure
from agentless.model.tasks.requirement import Condition, Requirement
from agentless.model.tasks.spec import TaskSpec, on_targets, without_zeros
from agentless.rules.submit.spans import LIMIT
from agentless.rules.views.nearest import nearest

_KEYS = {field.name for field in fields(TaskSpec)}


class JobRequest(BaseModel):
    """A job: its name, its specification, and a target.

    `requires` has the number of each job that it waits for, from 0 on and lower than its own, and the state in which
    that one has to end. Of jobs with the same third number, all have to end, and one of them so.
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    spec: TaskSpec
    target: str | None = None
    requires: list[tuple[int, Condition] | tuple[int, Condition, Annotated[int, Field(ge=0, le=LIMIT)]]] = []
    artifacts: list[str] = []

    @field_validator("spec", mode="before")
    @classmethod
    def _no_unknown_key(cls, spec: object) -> object:
        if isinstance(spec, dict) and (unknown := sorted(set(spec) - _KEYS)):
            raise ValueError(f"unknown key {unknown[0]!r}{nearest(unknown[0], _KEYS)}")
        return spec

    def tasks(self, first: Sequence[int], of: str, on_failure: OnFailure) -> tuple[TaskSpec, ...]:
        """The spec of its task, or of each node of it. `first` are the numbers of the first tasks of earlier jobs.

        Raises UsageError.
        """
        number = len(first)
        if late := next((each for each, *_ in self.requires if not 0 <= each < number), None):
            raise UsageError(f"job {number} cannot wait for job {late}, which is not before it")
        requires = tuple(
            Requirement(f"#{first[each] + 1}", state, one_of=next(iter(more), 0))
            for each, state, *more in self.requires
        )
        spec = without_zeros(self.spec)
        spec = replace(
            spec,
            job=Job(self.name, of, on_failure, artifacts=tuple(self.artifacts)),
            terms=replace(spec.terms, requires=requires),
        )
        return on_targets(spec, [self.target] if self.target else [])


class WorkflowRequest(BaseModel):
    """Body of `POST /v1/workflows`: all jobs, each behind those that it waits for. They are submitted all or none.

    `text` is that of the file, for people. `request` and `repeated` are as for `POST /v1/tasks`.
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    text: Annotated[str, Field(max_length=1 << 20)] = ""
    on_failure: OnFailure = "continue"
    jobs: Annotated[list[JobRequest], Field(min_length=1, max_length=LIMIT)]
    secrets: dict[str, str] = {}
    dry_run: bool = False
    owner: str | None = None
    request: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")] | None = None
    repeated: bool = False

    def submit(self, caller: Caller) -> Submit:
        """What the caller asks for; raises UsageError."""
        specs, first = list[TaskSpec](), list[int]()
        for job in self.jobs:
            tasks = job.tasks(first, self.name, self.on_failure)
            first.append(len(specs))
            specs += tasks
        if len(specs) > LIMIT:
            raise UsageError(f"{len(specs):,} tasks exceed the limit of {LIMIT:,}")
        owner = self.owner or None
        return Submit(tuple(specs), self.secrets, caller, self.dry_run, owner, self.request, self.repeated)


class WorkflowStopRequest(BaseModel):
    """`grace`: seconds between SIGTERM and SIGKILL. Default: as submitted."""

    model_config = ConfigDict(extra="forbid")
    grace: FiniteFloat | None = None


class WorkflowRetryRequest(BaseModel):
    """`job`: run this job again, and all that wait for it. Default: what did not complete."""

    model_config = ConfigDict(extra="forbid")
    job: str | None = None


class WorkflowGoOnRequest(BaseModel):
    """`digest` and the ids of `jobs` as they were shown. `by_hand`: also those that ask."""

    model_config = ConfigDict(extra="forbid")
    digest: str
    jobs: Annotated[list[str], Field(max_length=LIMIT)]
    by_hand: bool = False
