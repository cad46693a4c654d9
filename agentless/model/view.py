"""What is published: flat values with documented names, the same in the API, in `--json` and on every screen.

Times are RFC 3339 in UTC; None is "not known" or "does not apply". Fields are only ever added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentless.model.nodes.gpu import GpuProcess
from agentless.model.nodes.sessions import Sessions
from agentless.model.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class OutputView:
    """A path of the container that is brought back to `local`.

    `state` is `waiting` for the task's end, `coming`, `here`, `stuck` (it is tried again) or `missing` (it will not
    come), and `words` say more; `files` and `bytes` are what was written.
    """

    path: str
    local: str
    state: str
    words: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task. `gpus` are the indices at placing time, `gpu_uuids` what it holds; `cores`, `memory_bytes` its limits.

    `intruders` are processes outside its container that use its GPUs. `time_limit` is in seconds. `position` is its
    place in the queue, from 1 on, and `expected_start` when it starts at the latest, if nothing comes in before it;
    with `about`, that rests on how long earlier tasks took. `moved` is whether the place was given by hand.
    `scheduled_for` is when it goes into the queue. It is try number `attempt`, `retries` more than one are allowed, and
    the next one is the task `retried_as`. `parameters` are the values by which its command differs from those of its
    batch. `env` is the version of an env that it runs in. `idle_since` is since when none of its GPUs is used, once
    that is reported. `outputs` are brought back. `foreign`: all of this is what the labels of a container say that this
    controller has not started; it can be stopped.
    """

    id: str
    name: str | None
    state: str
    node: str | None
    gpus: tuple[int, ...]
    gpu_uuids: tuple[str, ...]
    image: str | None
    command: tuple[str, ...]
    env_names: tuple[str, ...]
    batch: str
    owner: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    reason: str | None
    container: str | None
    target: str
    cores: float | None
    memory_bytes: int | None
    labels: dict[str, str]
    mine: bool
    intruders: tuple[GpuProcess, ...]
    priority: int
    time_limit: float | None
    position: int | None
    expected_start: str | None
    scheduled_for: str | None
    attempt: int
    retries: int
    retried_as: str | None
    parameters: dict[str, str]
    moved: bool
    idle_since: str | None
    about: bool
    env: str | None = None
    outputs: tuple[OutputView, ...] = ()
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class ObstacleView:
    """One thing that stands in the way of a task on a node, in words; `details` say it of each GPU."""

    node: str
    text: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainView:
    """Why a task does not start: in a sentence, and node by node. A node that is not there would do.

    `remedies` has for each node in words what would make it fit there: another option, or the end of other tasks.
    """

    task: str
    summary: str
    expected_start: str | None
    obstacles: tuple[ObstacleView, ...]
    remedies: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU. `task` is the id of the task that holds it, `reason` why it is not free.

    `tasks` are all that hold it, several where they share it; `shares` is how many may, 1 where nobody shares.
    `reserved` says for whom it is reserved and when, in words, if it is now or will be within a day. `idle_since` is
    since when the task that holds it does not use it, once that is reported. `mine` is whether the owner who asks has
    that task.
    """

    node: str
    index: int
    uuid: str
    name: str | None
    driver: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    utilization_pct: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    state: str
    task: str | None
    owner: str | None
    reason: str
    processes: tuple[GpuProcess, ...]
    intruders: tuple[GpuProcess, ...]
    tasks: tuple[str, ...]
    shares: int
    reserved: str | None
    idle_since: str | None
    mine: bool


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A reservation. `gpus` are indices, none: the whole node; `owner` is None for maintenance.

    `in_the_way` are the tasks of others that may still be there when it begins, in words.
    """

    id: str
    node: str
    gpus: tuple[int, ...]
    owner: str | None
    begins_at: str
    ends_at: str
    reason: str
    made_by: str
    active: bool
    in_the_way: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `gpus` and `gpus_free` are counts, and `tasks` is: of whoever's live on it, None when it does not say.

    `drained` is whether nothing new starts there, also while its state is `offline`. `sessions` is what is in use of
    its SSH server, where it is looked at alone; None without such a server.
    """

    name: str
    state: str
    reason: str
    gpus: int
    gpus_free: int
    cores: int | None
    memory_mib: int | None
    docker: str | None
    nvidia_docker: bool | None
    driver: str | None
    address: str
    connection: str
    labels: dict[str, str]
    sampled_at: str | None
    drained: bool
    tasks: int | None
    sessions: Sessions | None = None


@dataclass(frozen=True, slots=True)
class ResumeView:
    """A node that was let in again, and in words what had kept it and its GPUs out; nothing when nothing had."""

    node: NodeView
    lifted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckView:
    """One thing `doctor` looked at. `ok` is None when it could not be looked at; `detail` says what to do."""

    node: str
    check: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image that a node has. `entrypoint` is what it runs in front of a command, empty if nothing."""

    name: str
    size: int
    entrypoint: str


@dataclass(frozen=True, slots=True)
class StartView:
    """What became of one target of a submit. `task` is None when it was refused; `exit_code` is 0 when it runs.

    Of a dry run `script` is what would be run, and `place` where, like `node1::0,1`; None when it would not start now.
    """

    target: str
    task: TaskView | None
    exit_code: int
    message: str
    script: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptView:
    """The exact script by which a task is launched on a node, and what reaches that node."""

    node: str
    address: str
    script: str


@dataclass(frozen=True, slots=True)
class ShareView:
    """What an owner has of the machines. `gpu_hours` are those used lately, decayed; `running` tasks hold `gpus` GPUs.

    `counted` is what the queue goes by, less first: `gpu_hours`, and what the running tasks are expected to use yet.
    """

    owner: str
    gpu_hours: float
    running: int
    gpus: int
    waiting: int
    counted: float


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """Tasks that could be taken back. `silent` are the nodes that do not tell theirs, with the reason.

    By task, `specs` are what would be trusted from then on, as the labels of their containers have it, and `digests`
    name exactly these labels and containers. `envs` are those whose current version is only assumed, each with that.
    """

    tasks: tuple[TaskView, ...]
    silent: dict[str, str]
    specs: dict[str, TaskSpec] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    envs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A volume of a node. `size_bytes` is None while the engine has not counted; `tasks` have a container with it."""

    node: str
    name: str
    owner: str
    size_bytes: int | None
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The controller itself."""

    version: str
    pid: int
    inventory: str
    state_dir: str
    started_at: str
    live_tasks: int
    nodes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that has happened: by its `kind` to a `task`, to a `node`, or to the `controller`.

    `seq` is its number, `at` Unix seconds by the controller's clock, `task` the task as it was after that,
    `request` the name of the request that submitted it.
    """

    seq: int
    at: float
    kind: str
    event: str | None = None
    cause: str | None = None
    task: TaskView | None = None
    node: str | None = None
    state: str | None = None
    reason: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class EnvVersionView:
    """A version of an env: the image `agentless/NAME:N` with its `id`, and the nodes that have it.

    `message`, `by` and `at` are what was said, by whom and when; `current`: it is meant when no version is named.
    """

    version: int
    image: str
    id: str
    size_bytes: int
    message: str
    by: str
    at: str
    current: bool
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvView:
    """An env. `node` has its build container, whose `state` is Docker's word; None: there is none, or it is not known.

    `version` is the current one, `size_bytes` the size of its image, `nodes` those that have it. What nodes that are
    `offline` have is as it was seen last. `assumed`: it counts as the current one because it is the newest; whether
    somebody had gone back from it is not remembered.
    """

    name: str
    node: str | None
    state: str | None
    version: int | None
    size_bytes: int | None
    nodes: tuple[str, ...]
    offline: tuple[str, ...]
    versions: tuple[EnvVersionView, ...]
    assumed: bool = False
