"""What the API takes: the bodies of its requests."""

from __future__ import annotations

from dataclasses import fields

from pydantic import BaseModel, ConfigDict, FiniteFloat, field_validator

from agentless.model.spec import TaskSpec
from agentless.rules.nearest import nearest


class SubmitRequest(BaseModel):
    """What `POST /v1/tasks` takes: the spec, the values of its secrets, and targets as written (`node1::0,1`).

    Each target is a task, and what it says adds to what the spec needs; without any the spec is one task. `owner` is
    whose they are; absent: of the one who asks.
    """

    model_config = ConfigDict(extra="forbid")
    targets: list[str] = []
    spec: TaskSpec
    secrets: dict[str, str] = {}
    dry_run: bool = False
    owner: str | None = None

    @field_validator("spec", mode="before")
    @classmethod
    def _no_unknown_key(cls, spec: object) -> object:
        # Labels and files may come from a newer version, and what they have more is left out; a request is not.
        known = {field.name for field in fields(TaskSpec)}
        if isinstance(spec, dict) and (unknown := sorted(set(spec) - known)):
            raise ValueError(f"there is no {unknown[0]!r}{nearest(unknown[0], known)}")
        return spec


class StopRequest(BaseModel):
    """Seconds between SIGTERM and SIGKILL; absent: as the task was submitted."""

    model_config = ConfigDict(extra="forbid")
    grace: FiniteFloat | None = None


class RecoveryRequest(BaseModel):
    """The ids of the tasks to remember, of those that `GET /v1/recovery` has shown."""

    model_config = ConfigDict(extra="forbid")
    tasks: list[str]


class TrustRequest(BaseModel):
    """The fingerprint that a person has compared, as `GET …/host-key` showed it."""

    model_config = ConfigDict(extra="forbid")
    fingerprint: str
