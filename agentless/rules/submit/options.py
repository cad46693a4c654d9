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
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from agentless.errors import UsageError
from agentless.rules.submit.kinds import (
    Endings,
    GpuMemory,
    GpuTypes,
    Memory,
    Mounts,
    Nodes,
    Outputs,
    Owner,
    Pairs,
    Policy,
    ShmSize,
    Signal,
    Time,
    Uploads,
    Volumes,
)

PLACEMENT, QUEUE, LIMITS, RETRIES = "Placement", "Queue", "Limits", "Retries"
CONTAINER, FILES, TASK = "Container", "Files and variables", "Task"

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option besides its name and type, which `OPTIONS` fills in.

    `default` is what the command line passes when the option is left out. `hint` is what a form shows in the empty
    field. `completes` says which names a shell may offer.
    """

    group: str
    help: str
    metavar: str | None = None
    default: str | int | None = None
    flags: tuple[str, ...] = ()
    many: bool = False
    completes: Literal["nodes", "envs"] | None = None
    hint: str = ""
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
            raise UsageError(f"{self.flag} takes {_WORDS[self.types[0]]}, not {value!r}")
        return value


class Options(TypedDict, total=False):
    """The options of a submit; None is the same as leaving one out."""

    gpus: Annotated[int | None, Option(PLACEMENT, "Number of GPUs, all on one node; 0: none.", "N")]
    gpu_memory: Annotated[
        GpuMemory, Option(PLACEMENT, "Minimum free memory per GPU, like 40G; without a unit: MB.", "SIZE")
    ]
    gpu_share: Annotated[
        int | None,
        Option(
            PLACEMENT, "Share each GPU with up to N tasks in all, if they agree; needs --gpu-memory.", "N", default=1
        ),
    ]
    gpu_type: Annotated[GpuTypes, Option(PLACEMENT, "GPU types, best first: A100,H100 or RTX*.", "TYPE,...")]
    node: Annotated[
        Nodes,
        Option(
            PLACEMENT,
            "Run on this node; repeat to allow several.",
            many=True,
            completes="nodes",
            hint="run on this node; several: any of them",
        ),
    ]
    exclude: Annotated[Nodes, Option(PLACEMENT, "Do not run on this node.", "NODE", many=True, completes="nodes")]
    on: Annotated[Pairs, Option(PLACEMENT, "Run on nodes with this label.", "LABEL=VALUE", many=True)]
    exclusive: Annotated[bool, Option(PLACEMENT, "Run no other task on the node.")]
    policy: Annotated[
        Policy,
        Option(PLACEMENT, "How to choose among matching nodes: pack, spread, best_fit, ...; default: inventory."),
    ]
    priority: Annotated[
        int | None,
        Option(QUEUE, "Higher priorities start first; -1000 to 1000.", "N", default=0, hint="-1000 to 1000"),
    ]
    time_limit: Annotated[
        Time,
        Option(
            LIMITS,
            "Stop the task after this time; short tasks can fill gaps in the queue; 0: no limit.",
            "TIME",
            hint="like 8h; short tasks can fill gaps in the queue",
        ),
    ]
    signal: Annotated[
        Signal,
        Option(LIMITS, "Signal to send at the time limit: TERM, USR1, ...", "NAME", default="TERM"),
    ]
    signal_before: Annotated[
        Time, Option(LIMITS, "Send the signal this long before the time limit; default: at the limit.", "TIME")
    ]
    at: Annotated[
        str | datetime | None, Option(QUEUE, "Start at this time or later: 18:30 or 2026-05-01T18:30.", "DATE")
    ]
    after: Annotated[Time, Option(QUEUE, "Start after this delay: 30min, 2h30m.", "TIME", flags=("--in",))]
    retries: Annotated[
        int,
        Option(
            RETRIES,
            "Retry up to N times on failure.",
            "N",
            default=0,
            hint="retry up to N times on failure",
        ),
    ]
    retry_on: Annotated[Endings, Option(RETRIES, "Retry on these: failed, oom, timeout, lost, exit:CODE.", "WHAT,...")]
    backoff: Annotated[
        Time, Option(RETRIES, "Pause before the first retry; doubles with each retry.", "TIME", default="10s")
    ]
    max_parallel: Annotated[int | None, Option(QUEUE, "Run at most N tasks of this batch at a time; 0: no limit.", "N")]
    zipped: Annotated[bool, Option(TASK, "Combine spans value by value, not all with all.", flags=("--zip",))]
    owner: Annotated[
        Owner, Option(TASK, "Owner of the task; default: $AGENTLESS_OWNER, else you, as user@host.", "NAME")
    ]
    image: Annotated[
        str | None,
        Option(
            CONTAINER,
            "Container image; default: as in the inventory.",
            hint="default: as in the inventory; ↓ lists images in use",
        ),
    ]
    container: Annotated[
        str | None,
        Option(CONTAINER, "Env to run in; copied to the node if missing.", "NAME[:N]", completes="envs"),
    ]
    pull: Annotated[
        str | None, Option(CONTAINER, "When to pull the --image: missing (default), always, never.", "WHEN")
    ]
    name: Annotated[str | None, Option(TASK, "Name of the task, for other commands.", hint="name for other commands")]
    cores: Annotated[float | None, Option(LIMITS, "CPU cores, like 4 or 0.5; 0: no limit.", hint="like 4")]
    memory: Annotated[
        Memory,
        Option(
            LIMITS,
            "Memory, like 8GB or 16GiB; without a unit: MB; 0: no limit.",
            "SIZE",
            hint="like 16GiB",
        ),
    ]
    shm_size: Annotated[ShmSize, Option(LIMITS, "Size of /dev/shm, like 8G; without a unit: MB; 0: default.", "SIZE")]
    env: Annotated[
        Pairs,
        Option(
            FILES,
            "Set a variable; without =VALUE, copy yours.",
            "KEY[=VALUE]",
            flags=("--env", "-e"),
            many=True,
            hint="one KEY=VALUE per line",
        ),
    ]
    secret_env: Annotated[
        Pairs,
        Option(
            FILES,
            "Set a secret variable; its value is never shown or stored.",
            "KEY[=VALUE]",
            flags=("--secret-env", "-s"),
            many=True,
        ),
    ]
    mount: Annotated[Mounts, Option(FILES, "Mount a folder of the node in the container.", "HOST:CONT[:ro]", many=True)]
    upload: Annotated[
        Uploads,
        Option(FILES, "Copy a local file or folder, as it is now, into the container.", "PATH[:DEST]", many=True),
    ]
    output: Annotated[
        Outputs,
        Option(FILES, "Copy this file or folder back when the task ends, even on failure.", "PATH[:LOCAL]", many=True),
    ]
    volume: Annotated[
        Volumes,
        Option(
            FILES,
            "Mount a volume of the node, created if missing (see: agentless volume).",
            "NAME:CONT[:ro]",
            many=True,
        ),
    ]
    workdir: Annotated[str | None, Option(CONTAINER, "Working folder in the container.")]
    user: Annotated[str | None, Option(CONTAINER, "User in the container, like 1000:1000.")]
    network: Annotated[str | None, Option(CONTAINER, "Docker network, like host or none.")]
    privileged: Annotated[bool, Option(CONTAINER, "Give full access to the node, including all its GPUs.")]
    share: Annotated[bool, Option(PLACEMENT, "Allow GPUs that foreign processes use.")]
    stop_grace: Annotated[Time, Option(LIMITS, "Time between SIGTERM and SIGKILL.", "TIME", default="10s")]
    label: Annotated[Pairs, Option(TASK, "Label the task, for searches.", "KEY=VALUE", many=True)]
    wait_for: Annotated[Time, Option(QUEUE, "Give up after this time in the queue; 0: do not wait.", "TIME")]
    no_queue: Annotated[bool, Option(QUEUE, "Start now, or exit with code 3.")]


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
