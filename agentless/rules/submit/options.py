"""The options of a submit, each declared once.

An option is one entry of `Options`: the name and the type that Python has for it, and an `Option` with the rest.
`OPTIONS` holds the same as values. The parameters of `submit`, `run` and `explain`, the fields of the dashboard's form
and the checks of a submission are made from it.

Its name says where a value goes: to the field of that name of a TaskSpec, of its needs or of its terms, or to the
plural of that name for what may be given several times.
"""
# No `from __future__ import annotations`: the annotations are evaluated once, as part of the class.

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from agentless.errors import UsageError
from agentless.model.notify import EVENTS, NONE
from agentless.model.tasks.gang import Launcher, OnMemberFailure
from agentless.model.tasks.requirement import IF_IMPOSSIBLE
from agentless.model.tasks.spec import PULL
from agentless.model.tasks.terms import RETRY_KINDS, SIGNALS, OnPreempt
from agentless.model.tasks.workload import WorkloadName
from agentless.rules.submit.kinds import (
    Endings,
    Events,
    GpuMemory,
    GpuTypes,
    Memory,
    Mounts,
    Nodes,
    OnPreempts,
    Outputs,
    Overflows,
    Owner,
    Pairs,
    Policy,
    Ports,
    Requires,
    RequiresBatches,
    ShmSize,
    Signal,
    Texts,
    Time,
    Uploads,
    Volumes,
)

WHERE, WHEN, RESOURCES, CONTAINER = "Where", "When", "Resources", "Container"
FILES, FAILURE, OUTPUT = "Files", "If it fails", "Output"
PANELS = (WHERE, WHEN, RESOURCES, CONTAINER, FILES, FAILURE, OUTPUT)
"""The headings of the options in the help, in order."""

POLICIES = ("pack", "spread", "first_fit", "best_fit", "least_loaded", "round_robin")
"""The ways to choose among matching nodes; the controller's queue has their costs."""

_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "True or False"}


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option besides its name and type, which `OPTIONS` fills in.

    `default` is what the command line passes when the option is left out. `hint` is what a form shows in the empty
    field. `completes` says which names a shell may offer, and `choices` are the words that a form offers. A `common`
    option is in the short help. `only` is the kind of workload that it is for, None: any.
    """

    panel: str
    help: str
    metavar: str | None = None
    default: str | int | None = None
    flags: tuple[str, ...] = ()
    many: bool = False
    completes: Literal["nodes", "clusters", "envs", "required"] | None = None
    hint: str = ""
    choices: tuple[str, ...] = ()
    common: bool = False
    only: WorkloadName | None = None
    name: str = ""
    types: tuple[type, ...] = ()
    reader: Callable[[Any, str], Any] | None = None

    @property
    def flag(self) -> str:
        """The name on the command line, with its dashes."""
        return self.flags[0]

    @property
    def argument_type(self) -> type:
        """The type of one value on the command line, where a reader reads text."""
        return self.types[0] if self.reader is None else str

    def read(self, value: Any) -> Any:
        """The value as a spec has it; raises UsageError that begins with the flag."""
        if self.reader is not None:
            return self.reader(value, self.flag)
        is_flag = isinstance(value, bool) and bool not in self.types  # to Python, True is a number
        if is_flag or not isinstance(value, (*self.types, int) if float in self.types else self.types):
            raise UsageError(f"{self.flag} must be {_WORDS[self.types[0]]}, not {value!r}")
        return value


class Options(TypedDict, total=False):
    """The options of a submit; None is the same as leaving one out."""

    node: Annotated[
        Nodes,
        Option(
            WHERE,
            "Run on this node; if repeated, on any of them",
            "NODE",
            many=True,
            completes="nodes",
            common=True,
            hint="only this node; several: any of them",
        ),
    ]
    exclude: Annotated[
        Nodes,
        Option(
            WHERE,
            "Do not run on this node",
            "NODE",
            many=True,
            completes="nodes",
            hint="not on these nodes; several: separated by spaces",
        ),
    ]
    on: Annotated[
        Pairs,
        Option(
            WHERE,
            "Run on nodes with this label",
            "LABEL=VALUE",
            many=True,
            hint="like rack=a: only nodes with this label",
        ),
    ]
    exclusive: Annotated[
        bool, Option(WHERE, "Do not share the node with other tasks", hint="no other tasks on its node")
    ]
    share: Annotated[
        bool,
        Option(
            WHERE,
            "Also use GPUs occupied by processes outside agentless",
            hint="also GPUs with processes outside agentless",
        ),
    ]
    gang: Annotated[
        int | None,
        Option(
            WHERE,
            "Run on N nodes at once, as one task: all start or none; GPUs and other resources are per node",
            "N",
            flags=("--nodes", "--gang"),
            hint="like 2: on 2 nodes at once",
            only="task",
        ),
    ]
    launcher: Annotated[
        str | None,
        Option(
            WHERE,
            "What starts the command on the nodes of --nodes: torchrun, mpirun or none (default: none)",
            "NAME",
            only="task",
            choices=(*get_args(Launcher), "none"),
        ),
    ]
    policy: Annotated[
        Policy,
        Option(
            WHERE,
            "How to choose among matching nodes: pack, spread, first_fit, best_fit, least_loaded or round_robin "
            "(default: the inventory's)",
            "POLICY",
            choices=POLICIES,
        ),
    ]
    overflow: Annotated[
        Overflows,
        Option(
            WHERE,
            "Slurm cluster to run on if no node can start it in time; several: the first that can; or none "
            "(default: the inventory's)",
            "CLUSTER,...",
            only="task",
            hint="like hpc: if no node can start it in time",
            completes="clusters",
        ),
    ]
    time_limit: Annotated[
        Time,
        Option(
            WHEN,
            "Maximum run time: 8h or 30min; 0 for no limit",
            "TIME",
            common=True,
            hint="like 8h; short tasks can fill gaps in the queue",
            only="task",
        ),
    ]
    signal: Annotated[
        Signal, Option(WHEN, "Signal to send at the time limit", "NAME", default="TERM", only="task", choices=SIGNALS)
    ]
    signal_before: Annotated[
        Time,
        Option(
            WHEN,
            "Send the signal this long before the limit (default: at the limit)",
            "TIME",
            only="task",
            hint="like 10min before the limit",
        ),
    ]
    stop_grace: Annotated[
        Time,
        Option(
            WHEN,
            "Time between SIGTERM and SIGKILL",
            "TIME",
            default="10s",
            flags=("--stop-grace", "--grace"),
            hint="10s between SIGTERM and SIGKILL",
        ),
    ]
    at: Annotated[
        str | datetime | None,
        Option(WHEN, "Start at this time: 18:30 or 2026-05-01T18:30", "DATE", hint="like 18:30 or 2026-05-01T18:30"),
    ]
    after: Annotated[
        Time,
        Option(
            WHEN, "Start after this delay: 30min or 2h30m", "TIME", flags=("--in",), hint="like 30min or 2h30m from now"
        ),
    ]
    requires: Annotated[
        Requires,
        Option(
            WHEN,
            "Start after these tasks; also TASK:failed, :ended",
            "TASK,...",
            flags=("--after",),
            many=True,
            completes="required",
            hint="like 2mxf or 2mxf:ended; starts after it",
            common=True,
            only="task",
        ),
    ]
    after_batch: Annotated[
        RequiresBatches,
        Option(
            WHEN,
            "Start after all tasks of the batch of this task; also TASK:failed, :ended",
            "TASK,...",
            many=True,
            completes="required",
            only="task",
            hint="like 2mxf: after all tasks of its batch",
        ),
    ]
    each: Annotated[
        bool,
        Option(
            WHEN,
            "With --after-batch: the first task waits for the first of the batch, and so on",
            only="task",
            hint="the first waits for the first, and so on",
        ),
    ]
    if_impossible: Annotated[
        str | None,
        Option(
            WHEN,
            "If what it waits for ends in another way: cancel it, or let it wait for a retry (default: cancel)",
            "WHAT",
            only="task",
            choices=IF_IMPOSSIBLE,
        ),
    ]
    priority: Annotated[
        int | None,
        Option(WHEN, "Higher priorities start first; -1000 to 1000", "N", default=0, hint="-1000 to 1000"),
    ]
    preemptible: Annotated[
        bool,
        Option(
            WHEN,
            "Run where nobody else wants to, and give way when another task needs the place",
            only="task",
            hint="gives way to tasks that need its place",
        ),
    ]
    min_run: Annotated[
        Time,
        Option(
            WHEN,
            "With --preemptible: do not give way before this time has passed",
            "TIME",
            only="task",
            hint="like 1h: runs at least that long",
        ),
    ]
    on_preempt: Annotated[
        OnPreempts,
        Option(
            WHEN,
            "With --preemptible: requeue (wait for another place) or end",
            "WHAT",
            default="requeue",
            only="task",
            choices=get_args(OnPreempt),
        ),
    ]
    no_queue: Annotated[bool, Option(WHEN, "Start now, or fail with exit code 3", common=True)]
    wait_for: Annotated[
        Time, Option(WHEN, "Give up after this time in the queue", "TIME", hint="like 1h, then it gives up")
    ]
    max_parallel: Annotated[
        int | None,
        Option(
            WHEN,
            "Run at most N tasks of the batch at the same time",
            "N",
            only="task",
            hint="like 4: tasks of the batch at once",
        ),
    ]
    zipped: Annotated[
        bool,
        Option(
            WHEN,
            "Pair the values of spans by position instead of combining all of them",
            flags=("--zip",),
            only="task",
            hint="pair the values of spans by position",
        ),
    ]
    gpus: Annotated[
        int | None,
        Option(
            RESOURCES, "GPUs, all on one node; with --nodes, on each", "N", common=True, hint="like 2; all on one node"
        ),
    ]
    gpu_memory: Annotated[
        GpuMemory,
        Option(RESOURCES, "Minimum free memory per GPU: 40G", "SIZE", common=True, hint="like 40G: at least, per GPU"),
    ]
    gpu_type: Annotated[
        GpuTypes,
        Option(
            RESOURCES,
            "GPU types, best first: A100,H100 or RTX*",
            "TYPE,...",
            common=True,
            hint="like A100,H100 or RTX*; best first",
        ),
    ]
    gpu_share: Annotated[
        int | None,
        Option(
            RESOURCES,
            "Allow up to N tasks per GPU, if the others allow it too; needs --gpu-memory",
            "N",
            default=1,
            hint="like 4: tasks per GPU",
        ),
    ]
    cores: Annotated[float | None, Option(RESOURCES, "CPU cores: 4 or 0.5", "N", common=True, hint="like 4")]
    memory: Annotated[Memory, Option(RESOURCES, "Memory: 8GB or 16GiB", "SIZE", common=True, hint="like 16GiB")]
    shm_size: Annotated[ShmSize, Option(RESOURCES, "Size of /dev/shm: 8G", "SIZE", hint="like 8G: size of /dev/shm")]
    image: Annotated[
        str | None,
        Option(
            CONTAINER,
            "Container image (default: the inventory's)",
            "IMAGE",
            common=True,
            hint="default: the inventory's; ↓ lists those in use",
        ),
    ]
    container: Annotated[
        str | None,
        Option(
            CONTAINER,
            "Env to run in; copied to the node if missing",
            "NAME[:N]",
            completes="envs",
            hint="like torch or torch:3, instead of an image",
            common=True,
        ),
    ]
    pull: Annotated[
        str | None,
        Option(CONTAINER, "When to pull the image: missing, always or never (default: missing)", "WHEN", choices=PULL),
    ]
    env: Annotated[
        Pairs,
        Option(
            CONTAINER,
            "Set a variable; KEY alone copies the value from your environment",
            "KEY[=VALUE]",
            flags=("--env", "-e"),
            many=True,
            common=True,
            hint="one KEY=VALUE per line",
        ),
    ]
    secret_env: Annotated[
        Pairs,
        Option(
            CONTAINER,
            "Set a variable whose value is never shown or stored",
            "KEY[=VALUE]",
            flags=("--secret-env", "-s"),
            many=True,
            only="task",
            hint="one KEY=VALUE per line; never shown",
        ),
    ]
    workdir: Annotated[
        str | None, Option(CONTAINER, "Working directory in the container", "PATH", hint="a path in the container")
    ]
    user: Annotated[str | None, Option(CONTAINER, "User in the container: 1000:1000", "USER", hint="like 1000:1000")]
    network: Annotated[str | None, Option(CONTAINER, "Docker network: host or none", "NETWORK", hint="host or none")]
    port: Annotated[
        Ports,
        Option(
            CONTAINER,
            "Forward a port of this machine to the task while --follow or run shows it",
            "PORT[:LOCAL]",
            many=True,
            hint="like 8888 or 8888:9999",
        ),
    ]
    privileged: Annotated[
        bool,
        Option(
            CONTAINER, "Give full access to the node and to all its GPUs", hint="full access to the node and its GPUs"
        ),
    ]
    public_key_file: Annotated[
        Texts,
        Option(
            CONTAINER,
            "Let the owners of the public keys in this file enter by ssh, over their controllers",
            "PATH",
            many=True,
            only="vps",
            hint="like ~/.ssh/id_ed25519.pub",
        ),
    ]
    public_key_string: Annotated[
        Texts,
        Option(
            CONTAINER,
            "The same, for a key: 'ssh-ed25519 AAAA…'",
            "KEY",
            many=True,
            only="vps",
            hint="one ssh-ed25519 AAAA… per line",
        ),
    ]
    no_ssh: Annotated[
        bool,
        Option(
            CONTAINER,
            "Let nobody enter by ssh, not even you; agentless shell still works",
            only="vps",
            hint="nobody enters by ssh, not even you",
        ),
    ]
    upload: Annotated[
        Uploads,
        Option(
            FILES,
            "Copy a local file or folder to the task",
            "PATH[:DEST]",
            many=True,
            common=True,
            only="task",
            hint="like data or data:in; from this machine",
        ),
    ]
    output: Annotated[
        Outputs,
        Option(
            FILES,
            "Copy a file or folder back at the end",
            "PATH[:LOCAL]",
            many=True,
            common=True,
            only="task",
            hint="like model.pt or model.pt:results",
        ),
    ]
    mount: Annotated[
        Mounts,
        Option(
            FILES,
            "Mount a folder of the node",
            "HOST:CONT[:ro]",
            many=True,
            hint="like /data:/data:ro; several: separated by spaces",
            common=True,
        ),
    ]
    volume: Annotated[
        Volumes,
        Option(
            FILES,
            "Mount a volume of the node; created if missing",
            "NAME:CONT[:ro]",
            many=True,
            hint="like cache:/root/.cache",
        ),
    ]
    retries: Annotated[
        int,
        Option(
            FAILURE,
            "Retry up to N times on failure",
            "N",
            default=0,
            common=True,
            hint="retry up to N times on failure",
            only="task",
        ),
    ]
    retry_on: Annotated[
        Endings,
        Option(
            FAILURE,
            "Failures to retry: failed, oom, timeout, lost or exit:CODE",
            "WHAT,...",
            only="task",
            choices=RETRY_KINDS,
        ),
    ]
    backoff: Annotated[
        Time,
        Option(
            FAILURE,
            "Delay before the first retry; doubles with each further retry",
            "TIME",
            default="10s",
            only="task",
            hint="10s; doubles with each retry",
        ),
    ]
    on_member_failure: Annotated[
        str | None,
        Option(
            FAILURE,
            "With --nodes, when the task fails on one node: stop the others, or let them continue (default: stop)",
            "WHAT",
            only="task",
            choices=get_args(OnMemberFailure),
        ),
    ]
    expires: Annotated[
        Time,
        Option(
            WHEN,
            "Stop it this long after its start: 7d; 0 for never",
            "TIME",
            only="vps",
            common=True,
            hint="like 7d: stop it this long after its start",
        ),
    ]
    idle_stop: Annotated[
        Time,
        Option(
            WHEN,
            "Stop it after this time without a session, GPU load or CPU load: 4h",
            "TIME",
            only="vps",
            common=True,
            hint="like 4h: stop it after this time without use",
        ),
    ]
    snapshot_on_stop: Annotated[
        int,
        Option(
            CONTAINER,
            "Take a snapshot whenever it stops, and keep the last N",
            "N",
            default=0,
            only="vps",
            hint="like 3: keep the last 3",
        ),
    ]
    name: Annotated[
        str | None, Option(OUTPUT, "Task name", "NAME", common=True, hint="to refer to the task by", only="task")
    ]
    label: Annotated[Pairs, Option(OUTPUT, "Label of the task", "KEY=VALUE", many=True, hint="like team=vision")]
    notify: Annotated[
        Events,
        Option(
            OUTPUT,
            "Events to send a message about: start, end, fail, preempt, lost; or none (default: the inventory's)",
            "EVENT,...",
            choices=(*EVENTS, NONE),
        ),
    ]
    owner: Annotated[
        Owner,
        Option(
            OUTPUT, "Owner of the task (default: $AGENTLESS_OWNER, else you as user@host)", "NAME", hint="default: you"
        ),
    ]


class PythonOptions(Options, total=False):
    """The options as Python takes them: some also by the name of their flag."""

    nodes: int | None
    grace: float | str | timedelta | None


def _declared(name: str, kind: Any) -> Option:
    *readers, declared = kind.__metadata__
    option: Option = replace(
        declared,
        name=name,
        types=get_args(kind.__origin__) or (kind.__origin__,),
        reader=readers[0] if readers else None,
        flags=declared.flags or (f"--{name.replace('_', '-')}",),
        default=False if kind.__origin__ is bool else declared.default,
    )
    return option


OPTIONS: Mapping[str, Option] = {
    name: _declared(name, kind) for name, kind in get_type_hints(Options, include_extras=True).items()
}

OTHER_NAMES: Mapping[str, str] = {
    name: option.name
    for option in OPTIONS.values()
    for name in (flag[2:].replace("-", "_") for flag in option.flags if flag.startswith("--"))
    if name not in OPTIONS
}
"""The flags under which Python has no option, with the name that it has there: `nodes` is `gang`."""


def options_of(workload: WorkloadName) -> list[Option]:
    """The options that a workload of this kind can have."""
    return [option for option in OPTIONS.values() if option.only in (None, workload)]
