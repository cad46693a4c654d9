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

_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False"}


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

    gpus: Annotated[int | None, Option(PLACEMENT, "Any N GPUs, on one node; 0: none.", "N")]
    gpu_memory: Annotated[
        GpuMemory, Option(PLACEMENT, "Memory of each GPU, free and in all, like 40G; a number alone is MB.", "SIZE")
    ]
    gpu_share: Annotated[
        int | None,
        Option(PLACEMENT, "Up to N tasks on each GPU, if all are willing; needs --gpu-memory.", "N", default=1),
    ]
    gpu_type: Annotated[GpuTypes, Option(PLACEMENT, "The best first: A100,H100 or RTX*.", "TYPE,...")]
    node: Annotated[
        Nodes,
        Option(
            PLACEMENT,
            "Only this node; several: any of them.",
            many=True,
            completes="nodes",
            hint="only this node; several: any of them",
        ),
    ]
    exclude: Annotated[Nodes, Option(PLACEMENT, "Not on this node.", "NODE", many=True, completes="nodes")]
    on: Annotated[Pairs, Option(PLACEMENT, "Only on nodes with this label.", "LABEL=VALUE", many=True)]
    exclusive: Annotated[bool, Option(PLACEMENT, "With no other task on the node.")]
    policy: Annotated[
        Policy, Option(PLACEMENT, "Which node of those that do: pack, spread, best_fit, ...; default: inventory.")
    ]
    priority: Annotated[
        int | None,
        Option(QUEUE, "Higher ones come first; -1000 to 1000.", "N", default=0, hint="-1000 to 1000"),
    ]
    time_limit: Annotated[
        Time,
        Option(
            LIMITS,
            "How long it may run; short ones may fill gaps in the queue; 0: no limit.",
            "TIME",
            hint="like 8h; short tasks can fill gaps in the queue",
        ),
    ]
    signal: Annotated[
        Signal,
        Option(LIMITS, "What tells it that its time limit is over, or nearly: TERM, USR1, ...", "NAME", default="TERM"),
    ]
    signal_before: Annotated[
        Time, Option(LIMITS, "So long before the limit, when it is killed; default: at it.", "TIME")
    ]
    at: Annotated[str | datetime | None, Option(QUEUE, "Not before: 18:30 or 2026-05-01T18:30.", "DATE")]
    after: Annotated[Time, Option(QUEUE, "Not before so long: 30min, 2h30m.", "TIME", flags=("--in",))]
    retries: Annotated[
        int,
        Option(
            RETRIES,
            "Try it again, up to so often, when it fails.",
            "N",
            default=0,
            hint="retry up to so many times on failure",
        ),
    ]
    retry_on: Annotated[Endings, Option(RETRIES, "When: failed, oom, timeout, lost, exit:CODE.", "WHAT,...")]
    backoff: Annotated[
        Time, Option(RETRIES, "Pause before the second try; doubled for each one more.", "TIME", default="10s")
    ]
    max_parallel: Annotated[int | None, Option(QUEUE, "Of this batch, at most so many at a time; 0: no limit.", "N")]
    zipped: Annotated[
        bool, Option(TASK, "Of several spans the first values together, then the second ones.", flags=("--zip",))
    ]
    owner: Annotated[Owner, Option(TASK, "Whose it is; default: $AGENTLESS_OWNER, else you, as user@host.", "NAME")]
    image: Annotated[
        str | None,
        Option(
            CONTAINER,
            "The container image; default: the inventory's.",
            hint="default: the inventory's; ↓ lists those in use",
        ),
    ]
    container: Annotated[
        str | None,
        Option(CONTAINER, "The env to run in, brought to the node if need be.", "NAME[:N]", completes="envs"),
    ]
    pull: Annotated[
        str | None, Option(CONTAINER, "When the --image is fetched: missing (the default), always, never.", "WHEN")
    ]
    name: Annotated[str | None, Option(TASK, "A name to refer to it by.", hint="to refer to the task by")]
    cores: Annotated[float | None, Option(LIMITS, "CPU cores for it, like 4 or 0.5; 0: no limit.", hint="like 4")]
    memory: Annotated[
        Memory,
        Option(
            LIMITS,
            "Memory for it, like 8GB or 16GiB; a number alone is MB; 0: no limit.",
            "SIZE",
            hint="like 16GiB",
        ),
    ]
    shm_size: Annotated[
        ShmSize, Option(LIMITS, "Size of /dev/shm, like 8G; a number alone is MB; 0: the default.", "SIZE")
    ]
    env: Annotated[
        Pairs,
        Option(
            FILES,
            "A variable; without =VALUE yours.",
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
            "The same, and its value is never shown or stored.",
            "KEY[=VALUE]",
            flags=("--secret-env", "-s"),
            many=True,
        ),
    ]
    mount: Annotated[
        Mounts, Option(FILES, "A folder of the node to see in the container.", "HOST:CONT[:ro]", many=True)
    ]
    upload: Annotated[
        Uploads, Option(FILES, "A file or folder of yours to have there, as it is now.", "PATH[:DEST]", many=True)
    ]
    output: Annotated[
        Outputs, Option(FILES, "What to bring back when it has ended, however it did.", "PATH[:LOCAL]", many=True)
    ]
    volume: Annotated[
        Volumes,
        Option(FILES, "A volume of the node, made if it is not there; see volume.", "NAME:CONT[:ro]", many=True),
    ]
    workdir: Annotated[str | None, Option(CONTAINER, "Folder in the container to start in.")]
    user: Annotated[str | None, Option(CONTAINER, "User in the container, like 1000:1000.")]
    network: Annotated[str | None, Option(CONTAINER, "Docker network, like host or none.")]
    privileged: Annotated[bool, Option(CONTAINER, "Full access to the node, all GPUs included.")]
    share: Annotated[bool, Option(PLACEMENT, "Also on a GPU that a process outside agentless uses.")]
    stop_grace: Annotated[Time, Option(LIMITS, "Between SIGTERM and SIGKILL.", "TIME", default="10s")]
    label: Annotated[Pairs, Option(TASK, "A label to find it by.", "KEY=VALUE", many=True)]
    wait_for: Annotated[Time, Option(QUEUE, "Give up after so long in the queue; 0: do not wait.", "TIME")]
    no_queue: Annotated[bool, Option(QUEUE, "Start now or be refused (exit code 3).")]


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
