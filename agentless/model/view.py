"""What is published: flat values with documented names, the same in the API, in `--json` and on every screen.

Times are RFC 3339 in UTC; None is "not known" or "does not apply". Fields are only ever added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.nodes.sessions import Sessions
from agentless.model.tasks.port import Port
from agentless.model.tasks.requirement import Requirement
from agentless.model.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class OutputView:
    """A path of the container that agentless copies to `local`.

    `state` is `waiting` (the task has not ended), `coming`, `here`, `stuck` (retrying) or `missing` (it will not
    arrive). `words` contain the details. `files` and `bytes` were written.
    """

    path: str
    local: str
    state: str
    words: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GangView:
    """The gang of a task: `members` are the ids of their first tries by rank. The first one names the gang."""

    id: str
    rank: int
    size: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task. `gpus` are the numbers at placement, `gpu_uuids` those it holds; `cores` and `memory_bytes` are limits.

    A number is 0, or "0/1" for part 1 of GPU 0.

    `intruders` are processes outside its container that use its GPUs. `time_limit` is in seconds. `position` is its
    place in the queue, from 1, and `expected_start` the latest start if no other task comes in before it; with `about`,
    an estimate from earlier tasks. `moved`: a user has set the place. `scheduled_for` is when it enters the queue.
    `attempt` is the number of the try, `retries` the number of allowed retries, and `retried_as` the task of the next
    try. `parameters` distinguish its command from others of its batch. `env` is the env version that it runs in.
    `idle_since`: its GPUs are idle since then, if reported. `outputs` are copied when it ends. `foreign`: another
    controller or user started it, and all values are read from its labels; you can stop it. `workload` is `task`, or
    `vps` for one that stays. `ports` are those that a client forwards. `gang` is None for a task on one
    node, and `job_nodes` is how many nodes its job has on a cluster. `compute_nodes` are those, as the cluster writes
    them (`c[1-2]`), once it has started. It `requires` these ends of other tasks and of batches, and `waits_for` those
    that have not come yet. `job` is its name in the `workflow` of that id. `preemptible`: it gives way to tasks that
    need its place. `preemptions` is how many earlier tries were preempted, and `victims` are the tasks that were, for
    it.
    """

    id: str
    name: str | None
    state: str
    node: str | None
    gpus: tuple[GpuNumber, ...]
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
    stops_at: str | None = None
    workload: str = "task"
    ports: tuple[Port, ...] = ()
    requires: tuple[Requirement, ...] = ()
    waits_for: tuple[Requirement, ...] = ()
    gang: GangView | None = None
    job_nodes: int = 1
    compute_nodes: str | None = None
    workflow: str | None = None
    job: str | None = None
    preemptible: bool = False
    preemptions: int = 0
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobView:
    """A task of a workflow, by its last try. It waits for the tasks that it `requires`, by the ids of first tries."""

    job: str
    parameters: dict[str, str]
    requires: tuple[Requirement, ...]
    task: TaskView


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A workflow. `counts` has the number of its tasks by state; `text` is that of its file, if it is shown alone.

    `state` is `pending`, `running`, `stopping`, `completed`, `failed` (a job has failed), `stopped`, `preempted`,
    `incomplete` or `cancelled`. `missing` is how many of its tasks are not known here: then it is never `completed`.
    `not_needed` is how many of the cancelled ones wait for a failure that did not happen. `not_carried` is why its
    containers do not carry it, if it is shown alone: `recover` cannot go on with it.
    """

    id: str
    name: str
    state: str
    owner: str
    mine: bool
    created_at: str
    ended_at: str | None
    on_failure: str
    counts: dict[str, int]
    jobs: tuple[JobView, ...] = ()
    text: str = ""
    not_carried: str = ""
    missing: int = 0
    not_needed: int = 0


@dataclass(frozen=True, slots=True)
class WorkflowStartView:
    """The answer to a workflow: the workflow, unless nothing was started; and for each job what became of it."""

    workflow: WorkflowView | None
    starts: tuple[StartView, ...]


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A snapshot of a VPS: its files at one time, without mounts and volumes. `nodes` have it."""

    snapshot: str
    vps: str
    image: str
    size_bytes: int
    message: str
    by: str
    at: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObstacleView:
    """A reason why a task cannot start on a node; `details` list the reasons per GPU."""

    node: str
    text: str
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplainView:
    """Why a task does not start: a summary, and obstacles by node. A node without obstacles matches.

    `remedies` list by node what would let it start there: another option, or the end of other tasks.
    `preemption` says who is preempted for it, or why nobody is; empty if there is nobody to preempt. `helps` lists what
    would let all members of a gang start.
    """

    task: str
    summary: str
    expected_start: str | None
    obstacles: tuple[ObstacleView, ...]
    remedies: dict[str, tuple[str, ...]]
    preemption: str = ""
    helps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservedView:
    """For whom a GPU is reserved, when and why; `owner` is None for maintenance."""

    owner: str | None
    begins_at: str
    ends_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU. `task` is the id of the task that holds it, `reason` why it is not free.

    `tasks` are all tasks that hold it, and `shares` is how many may (1: not shared). `reserved` describes a reservation
    that is active or begins within a day, and `reservation` has its values. `idle_since`: the task has not used it
    since then, if reported. `mine`: the task belongs to the caller. `desktop` are those of `processes` that keep no
    task from it. `assumed`: why nobody knows who uses it, if the inventory says to take it for free. `unified`: its
    memory is the machine's. Part of a GPU has the `kind` `slice`, the UUID and the index of its GPU as `parent` and
    `index`, and a `profile` like `1g.10gb`. `number` is how a target calls it: 0, or "0/1" for `part` 1 of GPU 0.
    `vendor` is its maker, like `nvidia`.
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
    desktop: tuple[GpuProcess, ...] = ()
    assumed: str = ""
    unified: bool = False
    kind: str = "gpu"
    number: GpuNumber | None = None
    parent: str | None = None
    part: int | None = None
    profile: str = ""
    vendor: str | None = None
    reservation: ReservedView | None = None


@dataclass(frozen=True, slots=True)
class ReservationView:
    """A reservation. `gpus` are numbers, like 0 or "0/1" (none: the whole node); `owner` is None for maintenance.

    `in_the_way` describes tasks of others that may still be running when it begins.
    """

    id: str
    node: str
    gpus: tuple[GpuNumber, ...]
    owner: str | None
    begins_at: str
    ends_at: str
    reason: str
    made_by: str
    active: bool
    in_the_way: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumaView:
    """A NUMA node: its CPUs in cpuset syntax, how many they are, its memory, and the indices of its GPUs."""

    id: int
    cpus: str
    cores: int
    memory_mib: int | None
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster with a queue of its own. `reason` is why it is not `online`, `tasks` how many are live there.

    As of `asked_at` (None: not known yet): `nodes` counts its compute nodes, `gpus` and `gpus_used` its GPUs by type,
    empty where it has none, `gpus_free` those that a job could get. `nodes_out` get no new jobs; `out` has the reasons
    of the first of them by name.
    """

    name: str
    engine: str
    state: str
    reason: str
    address: str
    tasks: int
    nodes: int = 0
    gpus: dict[str, int] = field(default_factory=dict)
    gpus_used: dict[str, int] = field(default_factory=dict)
    gpus_free: int = 0
    nodes_out: int = 0
    out: dict[str, str] = field(default_factory=dict)
    asked_at: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterNodeView:
    """A compute node of a cluster, as the cluster has it. `gpus` are numbers by type, an empty one where it has none.

    `reason` is why an administrator has taken it out. `gpus_free` are those that a job could get. Memory is in MiB.
    `as_of` is None if the cluster has just answered, else when it did so last.
    """

    name: str
    state: str
    reason: str
    gpus: dict[str, int]
    gpus_used: int
    cores: int
    cores_used: int
    memory_mib: int
    memory_used_mib: int
    gpus_free: int = 0
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `gpus`, `gpus_free` and `tasks` (live, of all owners) are counts; `tasks` is None if unknown.

    `drained`: no new tasks start there, even if the state is `offline`. `sessions` are the SSH sessions in use, if the
    node is requested alone; None without an SSH server. Values from `cores_busy` on are how busy the machine is, None
    while it is offline; `set_aside` is what tasks of all controllers have. `disk` is the file system of the engine's
    root, `disk_path`. `cards` says which GPUs on the PCI bus have no driver, empty if none.

    Facts of the engine are None or empty while unknown: `image_store` is `classic` or `containerd`, `missing_cgroups`
    are control groups without which it cannot limit. `cdi_devices` and `address_in_use`, the one of several that
    answers, are filled if the node is requested alone.
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
    cores_busy: float | None = None
    cores_set_aside: float = 0.0
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    memory_used_mib: int | None = None
    memory_available_mib: int | None = None
    memory_set_aside_mib: int = 0
    disk_path: str | None = None
    disk_used_mib: int | None = None
    disk_total_mib: int | None = None
    temperature_c: int | None = None
    network_in_bytes_per_second: float | None = None
    network_out_bytes_per_second: float | None = None
    numa: tuple[NumaView, ...] = ()
    cards: str = ""
    rootless: bool | None = None
    image_store: str | None = None
    cgroup_version: int | None = None
    missing_cgroups: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] | None = None
    address_in_use: str = ""


@dataclass(frozen=True, slots=True)
class ResumeView:
    """A resumed node, and the reasons that were removed, if any."""

    node: NodeView
    lifted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckView:
    """A check of `doctor`. `ok` is None if the check could not run; `detail` contains the fix.

    `verdict` is `ok`, `warning` (then `ok` is True), `failed` or `skipped`. `seen` is what was seen, `wrong` what is
    wrong about it, `fix` the commands that mend it, one per line, and `why` it matters. The commands are for the node,
    or for the controller's machine if `here`. Early controllers fill only the first four fields.
    """

    node: str
    check: str
    ok: bool | None
    detail: str
    verdict: str = ""
    seen: str = ""
    wrong: str = ""
    fix: str = ""
    why: str = ""
    here: bool = False


@dataclass(frozen=True, slots=True)
class SlurmNodeView:
    """A node of a Slurm configuration: the `line` of slurm.conf, and what Slurm's programs say of it, if asked.

    `slurmd` is the first line of `slurmd -C` on the node, `slurmctld` that of `scontrol -o show node`, and `sinfo` that
    of `sinfo -o '%N %G'`. They are empty where there is no such program or no answer.
    """

    node: str
    line: str
    slurmd: str
    slurmctld: str
    sinfo: str


@dataclass(frozen=True, slots=True)
class SlurmView:
    """The configuration of a Slurm cluster with these nodes: the texts of `files` by name.

    `silent` are the nodes that are left out, each with the reason. `notes` say what else is not as on the nodes.
    """

    files: dict[str, str]
    nodes: tuple[SlurmNodeView, ...]
    silent: dict[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image that a node has. `entrypoint` is what it runs in front of a command, empty if nothing."""

    name: str
    size: int
    entrypoint: str


@dataclass(frozen=True, slots=True)
class RemovalView:
    """What became of one of several tasks that were to be removed, by the name that it was asked for.

    `task` is it as it was; None if it is still there, for the reason in `message`. `exit_code` is 0 on success.
    """

    asked: str
    task: TaskView | None
    exit_code: int
    message: str


@dataclass(frozen=True, slots=True)
class StartView:
    """The result for one target of a submit. `task` is None if it was refused; `exit_code` is 0 on success.

    In a dry run, `script` is the launch script and `place` the placement, such as `node1::0,1`; None if it would not
    start now.
    """

    target: str
    task: TaskView | None
    exit_code: int
    message: str
    script: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptView:
    """The script that launches a task on a node, and how the node is reached."""

    node: str
    address: str
    script: str


@dataclass(frozen=True, slots=True)
class LogView:
    """The kept log of an ended task. `complete`: nothing of it was left out. `on_node`: its container has all of it.

    `bytes` is the size of its file. `lines` are those of both streams, with notes about what was left out.
    """

    task: str
    complete: bool
    on_node: bool
    bytes: int
    lines: int
    stdout_lines: int
    stderr_lines: int


@dataclass(frozen=True, slots=True)
class LogLineView:
    """A line of a log: its stream (1 stdout, 2 stderr, 3 a note in words), and its text as the task wrote it."""

    stream: int
    text: str


@dataclass(frozen=True, slots=True)
class LogLinesView:
    """Lines of a log that follow each other. `first` is the number of the first one, from 0."""

    first: int
    lines: tuple[LogLineView, ...]


@dataclass(frozen=True, slots=True)
class LogFoundView:
    """The number of the `line` that was found. If it is None, the search goes on at line `go_on`, or is over."""

    line: int | None
    go_on: int | None


@dataclass(frozen=True, slots=True)
class LogMatchesView:
    """The numbers of all lines that were found. If `go_on` is not None, the search goes on at that line."""

    lines: tuple[int, ...]
    go_on: int | None


@dataclass(frozen=True, slots=True)
class ShareView:
    """The share of an owner. `gpu_hours` is recent usage, decayed; `running` tasks hold `gpus` GPUs.

    `counted` orders the queue, lowest first: `gpu_hours` plus the expected remaining usage of running tasks.
    `lent_gpu_hours` are apart from both: recent usage by preemptible tasks, which orders only those.
    """

    owner: str
    gpu_hours: float
    running: int
    gpus: int
    waiting: int
    counted: float
    lent_gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """Tasks that you can take over. `silent` are nodes that did not list their tasks, with the reason.

    By task, `specs` are read from the labels of its container, and `digests` identify the container and its labels.
    `envs` are envs whose current version is assumed, with that version.
    """

    tasks: tuple[TaskView, ...]
    silent: dict[str, str]
    specs: dict[str, TaskSpec] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    envs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftJobView:
    """A job that had not begun when the state was lost. `decision` is `goes_on`, `ask` or `cannot`; `reason` says why.

    `goes_on`: it cannot have started, and goes on with its workflow. `ask`: only if you say so. `cannot`: what it needs
    was lost.
    """

    id: str
    job: str
    decision: str
    reason: str
    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class WorkflowLeftView:
    """A workflow as the labels of containers on `nodes` have it, with its jobs that had not begun.

    `signed`: this controller has written them. `digest` identifies its jobs, its name and its owner. `unread` is how
    many tasks had not begun of which nothing can be read; then there are no `jobs`.
    """

    id: str
    name: str
    owner: str
    signed: bool
    digest: str
    nodes: tuple[str, ...]
    jobs: tuple[LeftJobView, ...]
    unread: int = 0


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A volume of a node. `size_bytes` is None until the engine has computed it; containers of `tasks` use it."""

    node: str
    name: str
    owner: str
    size_bytes: int | None
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotifyView:
    """A target of notifications: its name, its `kind`, and the events and owners that it is for (none: all).

    `waiting` events are not sent yet. `problem` is why the last message could not be sent, empty if it could, and
    `failing_since` when that began. Addresses and tokens are not published.
    """

    name: str
    kind: str
    events: tuple[str, ...]
    owners: tuple[str, ...]
    waiting: int
    sent_at: str | None
    failing_since: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The state of the controller."""

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
    """An event: a change of a task, a node, a reservation, an env or the controller, as `kind` says.

    `seq` is its number, `at` Unix seconds of the controller's clock, `task` the task after the change, and `request`
    the name of the request that submitted it.
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

    `message`, `by` and `at` describe its creation. `current`: the version is used if no version is specified.
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
    """An env. `node` has its build container, with Docker's `state`; None if there is none or it is unknown.

    `version` is the current one, `size_bytes` the size of its image, `nodes` the nodes that have it. For `offline`
    nodes, the last known state is used. `assumed`: the newest version is taken as the current one, because the
    controller does not know of any rollback.
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
