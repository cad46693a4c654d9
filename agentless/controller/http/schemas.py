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
    """One command of a sweep, and its parameters by name."""

    model_config = ConfigDict(extra="forbid")
    command: tuple[str, ...]
    parameters: dict[str, str] = {}


class SubmitRequest(BaseModel):
    """Body of `POST /v1/tasks`: the specification, the values of its secrets, and targets (such as `node1::0,1`).

    Each target becomes one task; it adds to the needs of the specification. Without targets the specification is one
    task. With a `sweep`, each variation becomes one task per target.

    `owner` owns the tasks; default: the caller. `request` is a unique name of the request, chosen by the client. Set
    `repeated` to send a request again after its answer was lost: existing tasks of this `request` are returned, and
    nothing is started. With `each`, each task waits for one task of a required batch, in order, not for all of them.
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
    each: bool = False

    def specs(self) -> tuple[TaskSpec, ...]:
        """The tasks that are asked for; raises UsageError for a target that contradicts the spec."""
        asked = without_zeros(self.spec)
        varied = [replace(asked, command=v.command, parameters=v.parameters) for v in self.sweep] or [asked]
        return tuple(spec for each in varied for spec in on_targets(each, self.targets))

    def submit(self, caller: Caller) -> Submit:
        """What the caller asks for; raises UsageError as `specs` does."""
        owner = self.owner or None
        return Submit(self.specs(), self.secrets, caller, self.dry_run, owner, self.request, self.repeated, self.each)

    @field_validator("spec", mode="before")
    @classmethod
    def _no_unknown_key(cls, spec: object) -> object:
        # Labels and files may come from a newer version, and what they have more is left out; a request is not.
        known = {field.name for field in fields(TaskSpec)}
        if isinstance(spec, dict) and (unknown := sorted(set(spec) - known)):
            raise ValueError(f"unknown key {unknown[0]!r}{nearest(unknown[0], known)}")
        return spec


class RemovalRequest(BaseModel):
    """The tasks to remove; with `force`, also live ones. `part`: the others of their workflow are removed, too."""

    model_config = ConfigDict(extra="forbid")
    tasks: Annotated[list[str], Field(max_length=1000)]
    force: bool = False
    part: bool = False


class StopRequest(BaseModel):
    """`grace`: seconds between SIGTERM and SIGKILL. Default: as submitted."""

    model_config = ConfigDict(extra="forbid")
    grace: FiniteFloat | None = None


class VpsStartRequest(BaseModel):
    """With `anywhere`, also on other GPUs or another node, in a new container from a snapshot."""

    model_config = ConfigDict(extra="forbid")
    anywhere: bool = False


class VpsSnapshotRequest(BaseModel):
    """A one-line message for the snapshot."""

    model_config = ConfigDict(extra="forbid")
    message: str = ""


class RestoreRequest(BaseModel):
    """The snapshot: `dev:2`, or `2` of this VPS."""

    model_config = ConfigDict(extra="forbid")
    snapshot: str


class ResizeRequest(BaseModel):
    """Cores, memory in bytes, and a target with other GPUs. Null: as it is; 0: no limit."""

    model_config = ConfigDict(extra="forbid")
    cores: FiniteFloat | None = None
    memory: int | None = None
    target: str | None = None


class VpsTermsRequest(BaseModel):
    """When a VPS stops by itself, in seconds, and how many snapshots it keeps. Null: as it is; 0: never, none."""

    model_config = ConfigDict(extra="forbid")
    expires: FiniteFloat | None = None
    idle_stop: FiniteFloat | None = None
    snapshot_on_stop: int | None = None


class MoveRequest(BaseModel):
    """The new position in the queue: a number from 1, or before or after another task."""

    model_config = ConfigDict(extra="forbid")
    position: int | None = None
    before: str | None = None
    after: str | None = None


class ReservationRequest(BaseModel):
    """Targets (nodes or GPUs such as `node1::0-3`), owner (null: nobody), start (`begin`) and end in Unix seconds."""

    model_config = ConfigDict(extra="forbid")
    targets: list[str]
    owner: str | None
    begin: FiniteFloat
    end: FiniteFloat
    reason: str = ""


class RecoveryRequest(BaseModel):
    """The ids of tasks to take over, as listed by `GET /v1/recovery`.

    `digests` are those of that list. A task is refused if its container or labels have changed since.
    """

    model_config = ConfigDict(extra="forbid")
    tasks: list[str]
    digests: dict[str, str] = {}


class TrustRequest(BaseModel):
    """The fingerprint of the host key, as shown by `GET …/host-key`. Compare it first."""

    model_config = ConfigDict(extra="forbid")
    fingerprint: str


class CreateEnvRequest(BaseModel):
    """Base image, and the node for the build container. Default: any node."""

    model_config = ConfigDict(extra="forbid")
    image: str
    node: str | None = None


class SaveEnvRequest(BaseModel):
    """A one-line message for the version."""

    model_config = ConfigDict(extra="forbid")
    message: str = ""


class RollbackEnvRequest(BaseModel):
    """With `force`, the build container is reset even if unsaved changes are lost."""

    model_config = ConfigDict(extra="forbid")
    force: bool = False


class PushEnvRequest(BaseModel):
    """Target nodes (default: all), and the path of the transfer."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[str] = []
    via: Via = "auto"


class PruneEnvsRequest(BaseModel):
    """With `dry_run`, nothing is removed."""

    model_config = ConfigDict(extra="forbid")
    dry_run: bool = False


class DoctorRequest(BaseModel):
    """Body of `POST /v1/doctor/run` and `between`: the nodes; none means all."""

    model_config = ConfigDict(extra="forbid")
    nodes: list[str] = []


class DrainRequest(BaseModel):
    """Reason for the drain. Default: the previous reason, if any."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = None


class ResumeRequest(BaseModel):
    """Index of a GPU. Default: the node with all its GPUs. `drain_only`: its unhealthy GPUs stay out."""

    model_config = ConfigDict(extra="forbid")
    gpu: int | None = None
    drain_only: bool = False


class LookRequest(BaseModel):
    """Paths, each percent-encoded, since a path may contain any bytes."""

    model_config = ConfigDict(extra="forbid")
    paths: list[str]


class SnapshotRequest(BaseModel):
    """Files of a folder: path, kind (`f`, `d`, `l`), mode, size, and SHA-256 or link target."""

    model_config = ConfigDict(extra="forbid")
    files: list[tuple[str, str, int, int, str]]


class VolumeRequest(BaseModel):
    """A new volume, and its node."""

    model_config = ConfigDict(extra="forbid")
    name: str
    node: str
