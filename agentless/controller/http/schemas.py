"""What the API takes: the bodies of its requests."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

from agentless.controller.submit.request import Submit
from agentless.model.caller import Caller
from agentless.model.images.transfer import Via
from agentless.model.tasks.spec import TaskSpec, on_targets, without_zeros
from agentless.rules.views.nearest import nearest


class Variation(BaseModel):
    """One command of a sweep, and the values by which it differs from the others, by name."""

    model_config = ConfigDict(extra="forbid")
    command: tuple[str, ...]
    parameters: dict[str, str] = {}


class SubmitRequest(BaseModel):
    """What `POST /v1/tasks` takes: the spec, the values of its secrets, and targets as written (`node1::0,1`).

    Each target is a task, and what it says adds to what the spec needs; without any the spec is one task. With a
    `sweep` it is one for each variation, on each target. `owner` is whose they are; absent: of the one who asks.
    `request` is a name for the request, of the client's making. With `repeated` it was sent before and its answer was
    lost: if the tasks of that name are there, they are the answer, and nothing is started.
    """

    model_config = ConfigDict(extra="forbid")
    targets: list[str] = []
    sweep: list[Variation] = []
    spec: TaskSpec
    secrets: dict[str, str] = {}
    dry_run: bool = False
    owner: str | None = None
    request: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")] | None = None
    repeated: bool = False

    def specs(self) -> tuple[TaskSpec, ...]:
        """The tasks that are asked for; raises UsageError for a target that contradicts the spec."""
        asked = without_zeros(self.spec)
        varied = [replace(asked, command=v.command, parameters=v.parameters) for v in self.sweep] or [asked]
        return tuple(spec for each in varied for spec in on_targets(each, self.targets))

    def submit(self, caller: Caller) -> Submit:
        """What the caller asks for; raises UsageError as `specs` does."""
        return Submit(self.specs(), self.secrets, caller, self.dry_run, self.owner or None, self.request, self.repeated)

    @field_validator("spec", mode="before")
    @classmethod
    def _no_unknown_key(cls, spec: object) -> object:
        # Labels and files may come from a newer version, and what they have more is left out; a request is not.
        known = {field.name for field in fields(TaskSpec)}
        if isinstance(spec, dict) and (unknown := sorted(set(spec) - known)):
            raise ValueError(f"unknown key {unknown[0]!r}{nearest(unknown[0], known)}")
        return spec


class StopRequest(BaseModel):
    """Seconds between SIGTERM and SIGKILL; absent: as the task was submitted."""

    model_config = ConfigDict(extra="forbid")
    grace: FiniteFloat | None = None


class MoveRequest(BaseModel):
    """Where to in the queue, in one of three ways: a position from 1 on, before a task, after a task."""

    model_config = ConfigDict(extra="forbid")
    position: int | None = None
    before: str | None = None
    after: str | None = None


class ReservationRequest(BaseModel):
    """What to keep (nodes, or exact GPUs: `node1::0-3`), for whose tasks (null: nobody's), and when (Unix seconds)."""

    model_config = ConfigDict(extra="forbid")
    targets: list[str]
    owner: str | None
    begin: FiniteFloat
    end: FiniteFloat
    reason: str = ""


class RecoveryRequest(BaseModel):
    """The ids of the tasks to remember, of those that `GET /v1/recovery` has shown.

    `digests` are those shown with them: one whose container or labels have changed since is refused.
    """

    model_config = ConfigDict(extra="forbid")
    tasks: list[str]
    digests: dict[str, str] = {}


class TrustRequest(BaseModel):
    """The fingerprint that a person has compared, as `GET …/host-key` showed it."""

    model_config = ConfigDict(extra="forbid")
    fingerprint: str


class CreateEnvRequest(BaseModel):
    """The image to begin with, and the node for the build container; absent: any."""

    model_config = ConfigDict(extra="forbid")
    image: str
    node: str | None = None


class SaveEnvRequest(BaseModel):
    """What the version is for, in a line."""

    model_config = ConfigDict(extra="forbid")
    message: str = ""


class RollbackEnvRequest(BaseModel):
    """With `force` the build container is reset also where something is lost by that."""

    model_config = ConfigDict(extra="forbid")
    force: bool = False


class PushEnvRequest(BaseModel):
    """The nodes (none: all), and by which way."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[str] = []
    via: Via = "auto"


class PruneEnvsRequest(BaseModel):
    """With `dry_run` nothing is removed."""

    model_config = ConfigDict(extra="forbid")
    dry_run: bool = False


class DrainRequest(BaseModel):
    """Why nothing new is to start on the node; absent: as it was said before, if it was."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = None


class ResumeRequest(BaseModel):
    """The index of the one GPU to let in again; absent: the node and all its GPUs."""

    model_config = ConfigDict(extra="forbid")
    gpu: int | None = None


class LookRequest(BaseModel):
    """Paths at a place, each percent-encoded, for they may be any bytes."""

    model_config = ConfigDict(extra="forbid")
    paths: list[str]


class SnapshotRequest(BaseModel):
    """What `POST /v1/snapshots` takes: rows of path, kind (`f`, `d`, `l`), mode, size, SHA-256 or where it leads."""

    model_config = ConfigDict(extra="forbid")
    files: list[tuple[str, str, int, int, str]]


class VolumeRequest(BaseModel):
    """A volume to be made on a node."""

    model_config = ConfigDict(extra="forbid")
    name: str
    node: str
