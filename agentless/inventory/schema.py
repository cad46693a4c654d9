"""The shape of an inventory file: its keys, what each takes, and the words an editor shows for it.

A key is added here and in `model/node.NodeConfig`; the messages of `inventory.py` and the JSON Schema follow.
Every value arrives as the text that was written (see `marked_yaml`), so that a key decides what its text means.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from agentless.errors import UsageError
from agentless.inventory.ssh_hosts import HOST, parse_login
from agentless.model.address import Address, parse_address
from agentless.model.files.posix_path import within
from agentless.model.images.env import NULL, parse_ref
from agentless.model.nodes.node import TransportName
from agentless.model.nodes.slurm import ContainerRuntime
from agentless.model.notify import KINDS, NotifyEvent
from agentless.model.owner import check_owner
from agentless.model.scheduling.needs import NODE_NAME
from agentless.model.tasks.spec import LABEL_KEY, LOCAL_TEMP, SHARED, Mount, check_variable, parse_mount
from agentless.model.text import enumerated
from agentless.model.units import (
    DESKTOP_MEMORY,
    LOG,
    LOGS,
    SHM,
    Sizes,
    bare_size,
    format_duration,
    least_size,
    parse_duration,
    parse_size,
)
from agentless.model.usage.idle import IdlePolicy

MAX_VALUE = 32 * 1024
"""The largest value of a variable, in bytes. All of them are arguments of one command."""
_GIVES_GPUS = "VISIBLE_DEVICES"
"""What the variables of all vendors have in their names by which a task is given its GPUs."""
_DEVICE_MOUNTS = "-container-devices"
"""What the paths in a container have in their names at which a mount gives a GPU, of all vendors."""
_PLACES = {"/": "the image", LOCAL_TEMP: "local_temp", SHARED: "shared_dir"}
"""Paths in a container that no mount may have, and what sets them."""
MAX_TARGETS = 32
"""The most targets of notifications."""
MAX_RECIPIENTS = 32
"""The most recipients of a mail."""
_MAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,8})")


def _whole(text: object) -> object:
    """`022` would be 18 to some readers of YAML and 22 to others, so it is no number here."""
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError("must be a whole number, like 22")
    return int(text)


def _version(text: object) -> object:
    if text != "1":
        raise ValueError("this agentless reads version 1; use 'version: 1', or update agentless")
    return 1


def _word(text: str) -> str:
    if not text or text.startswith("-") or " " in text:
        raise ValueError("must be one word that does not begin with '-'")
    return text


def _host(text: str) -> str:
    if HOST.fullmatch(text):
        return text
    login = parse_login(text)
    if not login:
        raise ValueError("must be a host name, an address or an alias of ~/.ssh/config")
    keys = ", ".join(f"{key}: {value}" for key, value in login._asdict().items() if value)
    raise ValueError(f"user and port have their own keys; use {keys}")


def _fabric(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}(/[A-Za-z0-9_.-]{1,63}){0,7}", text):
        raise ValueError("use names separated by /, like pod1/leaf2")
    return text


def _other_address(text: str) -> str:
    if not parse_login(text) or "@" in text:
        raise ValueError("must be a host name, an address or an alias of ~/.ssh/config, with :PORT if it has one")
    return text


def _path(text: str) -> str:
    if not text:
        raise ValueError("must be the path of a private key")
    return text


def _job_folder(text: str) -> str:
    """Slurm replaces `%j`, pyxis splits at `:` and `,`."""
    if not text.strip() or not text.isprintable() or any(sign in text for sign in "%\\:,~"):
        raise ValueError("must be a path without '%', '\\', ':', ',' or '~', like /scratch/ann/agentless")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or ":" in text:
        raise ValueError("must be an absolute path on the nodes without ':', like /mnt/shared")
    return text


def _folder(text: str) -> str:
    path = _absolute(text)
    if within("/", path) == "/":
        raise ValueError("must be a folder like /usr/local/cuda-12.4, not /")
    return path


def _mount(text: object) -> Mount:
    try:
        mount = parse_mount(text if isinstance(text, str) else "")
    except UsageError:
        raise ValueError("must be /path/on/node:/path/in/container, or …:ro for read-only") from None
    place = within("/", mount.target)
    if _DEVICE_MOUNTS in place:
        raise ValueError(f"a mount at {place} would give tasks GPUs that they were not given; remove it")
    if place in _PLACES:
        raise ValueError(f"{place} in a task is set by {_PLACES[place]}; choose another path in the container")
    return mount


def _each_once(mounts: list[Mount]) -> list[Mount]:
    for place, count in Counter(within("/", mount.target) for mount in mounts).items():
        if count > 1:
            raise ValueError(f"two mounts have the path {place} in the container; keep one")
    return mounts


def _variable(name: str) -> str:
    try:
        check_variable(name)
    except UsageError as error:
        raise ValueError(str(error)) from None
    if _GIVES_GPUS in name:
        raise ValueError(f"variable {name[:80]} is reserved for agentless, which gives a task its own GPUs; remove it")
    return name


def _value(text: str) -> str:
    if len(text.encode()) > MAX_VALUE:
        raise ValueError(f"a variable has at most {MAX_VALUE:,} bytes; write a larger value to a file and mount it")
    return text


def _container(text: str) -> str:
    if text != NULL:
        try:
            parse_ref(text)
        except UsageError:
            raise ValueError("must be an env, like torch, or a version of it, like torch:3") from None
    return text


def _program(text: str) -> str:
    if not text or "/" in text or " " in text:
        raise ValueError("must be the file name of a program, like Xorg")
    return text


def _shell_words(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError("has no closing quote") from error
    if not words or words[0].startswith("-"):
        raise ValueError("must be the command for Docker, like 'sudo docker'")
    return text


def _file(text: str) -> str:
    if not text or "://" in text:
        raise ValueError("must be the path of a file with the address, since the address is a secret")
    return text


def _path_of_token(text: str) -> str:
    if not text:
        raise ValueError("must be the path of a file with a token")
    return text


def _web_address(text: str) -> str:
    if "://" not in text:
        return _file(text)
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be an address like https://example.com/hook, or the path of a file with one")
    if "@" in parts.netloc:
        raise ValueError("must not contain a password; write the address into a file, and specify the path of the file")
    return text


def _recipient(text: str) -> str:
    if not _MAIL.fullmatch(text):
        raise ValueError("must be an address like ann@example.com, or a user of this machine")
    return text


def _owner(text: str) -> str:
    try:
        return check_owner(text, "owner")
    except UsageError:
        raise ValueError("must be an owner as in agentless ps, like ann or ann@laptop") from None


def _program_and_words(text: str) -> str:
    try:
        return _shell_words(text)
    except ValueError:
        raise ValueError("must be a program with its arguments, like 'notify-send agentless'") from None


def _some_recipients(found: list[str]) -> list[str]:
    if not 0 < len(found) <= MAX_RECIPIENTS:
        raise ValueError(f"must have 1 to {MAX_RECIPIENTS} recipients")
    return found


def _node_name(text: str) -> str:
    if not NODE_NAME.fullmatch(text):
        raise ValueError("a node name has letters, digits, '.', '_' and '-', and begins with a letter or digit")
    return text


def _label_key(text: str) -> str:
    if not LABEL_KEY.fullmatch(text):
        raise ValueError("a label has letters, digits, '.', '_', '/' and '-', and begins with a letter or digit")
    return text


def _duration(text: object) -> object:
    return _positive(parse_duration, text, "must be a duration above 0, like 24h, 90min or 7d")


def _duration_or_never(text: object) -> object:
    return None if text == "never" else _positive(parse_duration, text, "must be a duration above 0, like 2h, or never")


def _bool(text: object) -> object:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _size(of: Sizes) -> Callable[[object], float]:
    def read(text: object) -> float:
        if isinstance(text, str) and (wrong := bare_size(text, of)):
            raise ValueError(wrong)
        size = _positive(lambda size: parse_size(size, of), text, "must be a size above 0, like 16MiB or 1GB")
        if wrong := least_size(int(size), of):
            raise ValueError(wrong)
        return size

    return read


def _address(text: object) -> object:
    try:
        return parse_address(text if isinstance(text, str) else "")
    except ValueError:
        raise ValueError(
            "must be a port of this machine, like 9400, or an address and a port, like 127.0.0.1:9400"
        ) from None


def _positive(parse: Callable[[str], float], text: object, wanted: str) -> float:
    try:
        value = parse(text) if isinstance(text, str) else 0
    except UsageError:
        value = 0
    if not value > 0:
        raise ValueError(wanted)
    return value


Policy = Literal["pack", "spread", "first_fit", "best_fit", "least_loaded", "round_robin"]
"""One file each in `rules/policies`."""

_POSITIVE = {"type": ["string", "integer"], "minimum": 1, "pattern": "^(?=.*[1-9])[0-9][0-9A-Za-z. ]*$"}
_Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema(_POSITIVE)]
_LogSize = Annotated[int, BeforeValidator(_size(LOG)), WithJsonSchema(_POSITIVE)]
_LogsSize = Annotated[int, BeforeValidator(_size(LOGS)), WithJsonSchema(_POSITIVE)]
_NEVER = {"anyOf": [_POSITIVE, {"const": "never"}]}
_DurationOrNever = Annotated[float | None, BeforeValidator(_duration_or_never), WithJsonSchema(_NEVER)]
_PORT = {
    "type": ["string", "integer"],
    "minimum": 1,
    "maximum": 65535,
    "pattern": r"^(localhost:|[0-9.]+:|\[.+\]:)?[1-9][0-9]{0,4}$",
}
_Address = Annotated[Address, BeforeValidator(_address), WithJsonSchema(_PORT)]
_Word = Annotated[str, AfterValidator(_word)]
_Mount = Annotated[Mount, BeforeValidator(_mount), WithJsonSchema({"type": "string", "pattern": "^/[^:]*:/"})]
_Value = Annotated[str, AfterValidator(_value), WithJsonSchema({"type": ["string", "number", "boolean"]})]
_Label = Annotated[str, WithJsonSchema({"type": ["string", "number", "boolean"]})]


class Cuda(BaseModel):
    """The CUDA of a node, for tasks without a container."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, AfterValidator(_folder)] | None = Field(
        default=None,
        description="Folder of CUDA on the node, with bin and lib64 in it. Default: /usr/local/cuda, else the highest "
        "version of /usr/local/cuda-*.",
    )


class Foreign(BaseModel):
    """Which processes outside agentless keep no task from a GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ignore: list[Annotated[str, AfterValidator(_program)]] | None = Field(
        default=None,
        description="File names of programs of a desktop, like Xorg or firefox. Default: display servers, "
        "compositors, browsers and VS Code.",
    )
    below: Annotated[int, BeforeValidator(_size(DESKTOP_MEMORY)), WithJsonSchema(_POSITIVE)] | None = Field(
        default=None,
        description="They are ignored while all of them use less GPU memory than this in total. Default: 512MiB.",
    )


class Unlisted(BaseModel):
    """What to assume of GPUs whose driver does not list the processes on them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    assume: Literal["free"] | None = Field(
        default=None,
        description="free: take a GPU for free unless a task holds it, whatever else uses it. Default: give it to no "
        "task.",
    )


class Amd(BaseModel):
    """AMD GPUs of a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seccomp: Literal["default", "unconfined"] | None = Field(
        default=None,
        description="unconfined: containers with AMD GPUs have no filter of system calls, which some ROCm images need. "
        "Default: the engine's filter.",
    )


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    user: _Word | None = Field(default=None, description="Login name on the node. Default: as in ~/.ssh/config.")
    port: Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole)] | None = Field(
        default=None, description="SSH port. Default: as in ~/.ssh/config, else 22."
    )
    identity_file: Annotated[str, AfterValidator(_path)] | None = Field(
        default=None,
        description="Private key: an absolute path, ~/..., or a path relative to the inventory.",
    )
    jump: _Word | None = Field(default=None, description="Jump host, as for ssh -J.")
    connection: TransportName | None = Field(
        default=None,
        description="How to reach the node: asyncssh (default), paramiko, or local for this machine.",
    )
    docker: Annotated[str, AfterValidator(_shell_words)] | None = Field(
        default=None,
        description="The command for Docker on the node, like 'sudo docker'; or podman. Default: docker.",
    )
    image: _Word | None = Field(default=None, description="Default image of tasks.")
    labels: dict[Annotated[str, AfterValidator(_label_key)], _Label] | None = Field(
        default=None,
        description="Labels to select nodes by. A node's labels are added to those of the defaults.",
    )
    local_temp: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Existing folder on the node for temporary files; /local_temp in a task.",
    )
    mounts: Annotated[list[_Mount], AfterValidator(_each_once)] | None = Field(
        default=None,
        description="Mounts of every container, like /data:/data:ro. A node's mounts are added to those of the "
        "defaults; a task's own mount or volume at the same path in the container wins.",
    )
    env: dict[Annotated[str, AfterValidator(_variable)], _Value] | None = Field(
        default=None,
        description="Variables of every task; no secrets. A node's variables are added to those of the defaults; a "
        "task's own wins.",
    )
    privileged: Annotated[bool, BeforeValidator(_bool)] | None = Field(
        default=None,
        description="Run every container with --privileged: it sees all GPUs of the node, also those of others. "
        "Default: false.",
    )
    network: _Word | None = Field(
        default=None, description="Docker network of tasks, like host. Default: the engine's. A task's own wins."
    )
    shm_size: Annotated[int, BeforeValidator(_size(SHM)), WithJsonSchema(_POSITIVE)] | None = Field(
        default=None,
        description="Size of /dev/shm in a container, like 8GiB. A number without a unit is MB. Default: the "
        "engine's, 64 MiB. A task's own wins.",
    )
    cuda: Cuda | None = Field(default=None, description="The CUDA of the node, for tasks without a container.")
    foreign: Foreign | None = Field(
        default=None, description="Which processes outside agentless keep no task from a GPU."
    )
    wsl: Unlisted | None = Field(
        default=None, description="A node in WSL2: nobody lists which programs, also of Windows, use its GPU."
    )
    jetson: Unlisted | None = Field(
        default=None, description="A Jetson before Thor: its driver does not list which programs use its GPU."
    )
    amd: Amd | None = Field(default=None, description="AMD GPUs of the node.")
    exclude_gpus: list[Annotated[int, Field(ge=0), BeforeValidator(_whole)]] | None = Field(
        default=None, description="Indices (as in nvidia-smi) of GPUs that agentless never uses."
    )
    accept_engines: list[_Word] | None = Field(
        default=None,
        description="Users whose rootless Docker engines may run on the node, although agentless cannot see "
        "which GPUs they use; all: every user.",
    )


class Defaults(_Keys):
    """Settings of all nodes; a node can override each of them. `null` on a node removes a default."""

    shared_dir: Annotated[str, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Folder shared by all nodes, at the same absolute path; /shared in a task.",
    )
    container: Annotated[str, AfterValidator(_container)] | None = Field(
        default=None,
        description="Default env of tasks, like torch or torch:3.",
    )


class Node(_Keys):
    """A machine. Needs a host, unless its connection is local or ~/.ssh/config has its name."""

    host: Annotated[str, AfterValidator(_host)] | None = Field(
        default=None, description="Name, address or ~/.ssh/config alias of the machine."
    )
    address: list[Annotated[str, AfterValidator(_other_address)]] | None = Field(
        default=None,
        description="More addresses of the machine, for other networks, like [gpu1-vpn, 192.0.2.7:2222]. "
        "The first that answers with the host key of host is used.",
    )
    fabric: Annotated[str, AfterValidator(_fabric)] | None = Field(
        default=None,
        description="Where the node is in the network between nodes, from the outside in, like pod1/leaf2. A task with "
        "--nodes gets nodes that are near each other.",
    )
    fabric_address: Annotated[str, AfterValidator(_host)] | None = Field(
        default=None,
        description="Address by which other nodes reach this one, for tasks with --nodes. Default: the one at which "
        "SSH reaches the node.",
    )
    allow: Literal["slurm"] | None = Field(
        default=None,
        description="slurm: give tasks this node although slurmd runs there, because it is drained in Slurm, or Slurm "
        "does not know its GPUs. Default: no task runs on a node that Slurm manages.",
    )


class Cluster(BaseModel):
    """A cluster with a queue of its own, which takes the tasks that have it as their target."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: Annotated[str, AfterValidator(_host)] | None = Field(
        default=None, description="Name, address or ~/.ssh/config alias of a login node. Default: the cluster's name."
    )
    user: _Word | None = Field(default=None, description="User on the login node.")
    port: Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole)] | None = Field(
        default=None, description="SSH port of the login node."
    )
    identity_file: Annotated[str, AfterValidator(_path)] | None = Field(default=None, description="Private key file.")
    jump: _Word | None = Field(default=None, description="Jump host, as for ssh -J.")
    connection: TransportName | None = Field(default=None, description="How to reach the login node.")
    engine: Literal["slurm"] = Field(description="What runs the queue of the cluster: slurm.")
    partition: _Word | None = Field(default=None, description="Slurm partition of its tasks. Default: Slurm's.")
    account: _Word | None = Field(default=None, description="Slurm account of its tasks. Default: yours.")
    qos: _Word | None = Field(default=None, description="Slurm quality of service of its tasks. Default: Slurm's.")
    folder: Annotated[str, AfterValidator(_job_folder)] | None = Field(
        default=None,
        description="Folder for scripts and output of jobs, on a disk that the login node and its compute nodes share; "
        "below your home folder unless it begins with /. Default: .agentless/slurm.",
    )
    container: ContainerRuntime | None = Field(
        default=None, description="What runs images on its compute nodes: pyxis, apptainer or none. Default: none."
    )


class Overflowing(BaseModel):
    """The clusters that take tasks which no node can start in time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clusters: list[str] | None = Field(
        default=None,
        description="Names of clusters: the first that can take a task gets it. Default: those that the task names "
        "with --overflow.",
    )
    after: _Duration | None = Field(
        default=None,
        description="Expected waiting from which on a task goes to a cluster. Default: 30min.",
    )


def _overflow(written: object) -> object:
    """Names alone are the clusters."""
    return {"clusters": written} if isinstance(written, list) else written


_Overflow = Annotated[Overflowing | None, BeforeValidator(_overflow, json_schema_input_type=list[str] | Overflowing)]


class Kept(BaseModel):
    """How long agentless keeps containers and logs of ended tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    containers: _Duration | None = Field(
        default=None,
        description="How long an ended container stays on its node after agentless has copied its log. Default: 24h.",
    )
    log: _LogSize | None = Field(
        default=None,
        description="Maximum size of one log. Of a longer log, agentless keeps the beginning and the end. "
        "A number without a unit is MB. Default: 16MiB.",
    )
    logs: _LogsSize | None = Field(
        default=None,
        description="Maximum total size of all logs; the oldest are deleted first. A number without a unit is MB. "
        "Default: 1GiB.",
    )


class Queue(BaseModel):
    """How agentless places and orders tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Policy | None = Field(
        default=None, description="How to choose among matching nodes. Default: pack, the fullest node."
    )
    half_life: _Duration | None = Field(
        default=None, description="Half-life of the GPU-hours an owner has used. Default: 7d."
    )
    learn: Annotated[bool, BeforeValidator(_bool)] | None = Field(
        default=None,
        description="Estimate the length of tasks without a time limit from earlier tasks, so that they can fill gaps."
        " Default: false.",
    )


class Idle(BaseModel):
    """What to do about idle GPUs of tasks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    report: _Duration | None = Field(default=None, description="Report a GPU after this time at 0 %. Default: 30min.")
    stop: _DurationOrNever | None = Field(
        default=None,
        description="Stop a task after this time with all its GPUs at 0 %; a warning comes first. Default: never.",
    )

    preempt: _DurationOrNever | None = Field(
        default=None,
        description="After this time with all its GPUs at 0 %, a task gives way to tasks that need its place, and goes"
        " back to the queue; a warning comes first. Default: never.",
    )

    @field_validator("stop", "preempt")
    @classmethod
    def _after_the_report(cls, after: float | None, others: ValidationInfo) -> float | None:
        report = others.data.get("report") or IdlePolicy().report
        if after is not None and after <= report:
            raise ValueError(f"must be longer than report: ({format_duration(report)}), the time of the warning")
        return after


class Health(BaseModel):
    """When a GPU counts as unhealthy, and how it recovers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: Annotated[int, Field(ge=1, le=200), BeforeValidator(_whole)] | None = Field(
        default=None, description="A GPU at or above this temperature, in °C, is unhealthy. Default: no limit."
    )
    resume: Literal["manual", "automatic"] | None = Field(
        default=None,
        description="How an unhealthy GPU recovers: manual (you resume it; the default) "
        "or automatic (when the problem is gone).",
    )


class Notify(BaseModel):
    """A target of notifications: one of command, webhook, slack, discord, ntfy and mail."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: Annotated[str, AfterValidator(_program_and_words)] | None = Field(
        default=None, description="A program on the controller's machine, which gets JSON on its standard input."
    )
    webhook: Annotated[str, AfterValidator(_web_address)] | None = Field(
        default=None, description="An address that gets JSON by POST, or the path of a file with it."
    )
    slack: Annotated[str, AfterValidator(_file)] | None = Field(
        default=None, description="The path of a file with the address of an incoming webhook of Slack, or Mattermost."
    )
    discord: Annotated[str, AfterValidator(_file)] | None = Field(
        default=None, description="The path of a file with the address of a webhook of Discord."
    )
    ntfy: Annotated[str, AfterValidator(_web_address)] | None = Field(
        default=None, description="A topic of ntfy, like https://ntfy.sh/my-topic, or the path of a file with it."
    )
    mail: Annotated[list[Annotated[str, AfterValidator(_recipient)]], AfterValidator(_some_recipients)] | None = Field(
        default=None, description="Recipients of mail, which sendmail of the controller's machine sends."
    )
    token_file: Annotated[str, AfterValidator(_path_of_token)] | None = Field(
        default=None, description="The path of a file with a token, sent to a web address as Authorization: Bearer."
    )
    sender: Annotated[str, AfterValidator(_recipient)] | None = Field(
        default=None, description="Sender of mail. Default: sendmail's."
    )
    sendmail: Annotated[str, AfterValidator(_program_and_words)] | None = Field(
        default=None, description="The program for mail, like 'msmtp -a work'. Default: sendmail."
    )
    events: list[NotifyEvent] | None = Field(
        default=None,
        description="Events to send: start, end (of any kind), fail, preempt, lost. A task's own --notify wins. "
        "Default: [end].",
    )
    owners: list[Annotated[str, AfterValidator(_owner)]] | None = Field(
        default=None, description="Only for tasks of these owners, like ann or ann@laptop. Default: all."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(f"needs exactly one of {enumerated(KINDS)}")
        if kinds != ["mail"] and (self.sender or self.sendmail):
            raise ValueError("only mail has a sender or sendmail; remove them")
        if self.token_file and kinds[0] in ("command", "mail"):
            raise ValueError(f"{kinds[0]} takes no token_file; remove it")
        return self


def _few(targets: dict[str, Notify]) -> dict[str, Notify]:
    if len(targets) > MAX_TARGETS:
        raise ValueError(f"has {len(targets)} targets; the limit is {MAX_TARGETS}")
    return targets


class InventoryFile(BaseModel):
    """The machines that agentless may use, and how to reach them."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="agentless inventory")

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(description="Version of this format: 1.")
    defaults: Defaults | None = Field(
        default=None, description="Settings of all nodes; a node can override each of them."
    )
    keep: Kept | None = Field(default=None, description="How long agentless keeps containers and logs of ended tasks.")
    queue: Queue | None = Field(default=None, description="How agentless places and orders tasks.")
    health: Health | None = Field(default=None, description="When a GPU counts as unhealthy, and how it recovers.")
    idle: Idle | None = Field(default=None, description="What to do about idle GPUs of tasks.")
    notify: Annotated[dict[Annotated[str, AfterValidator(_node_name)], Notify], AfterValidator(_few)] | None = Field(
        default=None,
        description="Where to send messages about tasks, by names that you choose.",
        json_schema_extra={"propertyNames": {"pattern": f"^{NODE_NAME.pattern}$"}},
    )
    metrics: _Address | None = Field(
        default=None,
        description="Where to serve /metrics for Prometheus: a port of this machine, like 9400, or an address and a "
        "port, like 192.0.2.1:9400. Default: no port.",
    )
    clusters: dict[Annotated[str, AfterValidator(_node_name)], Cluster] | None = Field(
        default=None,
        description="Slurm clusters by name. Targets use the name, like hpc or hpc 2xA100.",
        json_schema_extra={"propertyNames": {"pattern": f"^{NODE_NAME.pattern}$"}},
    )
    overflow: _Overflow = Field(
        default=None,
        description="Clusters for tasks that would wait too long for nodes, like [hpc] or "
        "{clusters: [hpc], after: 30min}.",
    )
    nodes: dict[Annotated[str, AfterValidator(_node_name)], Node | None] = Field(
        description="The machines by name. Targets use the name, like node1 in node1::0. May be {} beside clusters.",
        json_schema_extra={"minProperties": 1, "propertyNames": {"pattern": f"^{NODE_NAME.pattern}$"}},
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of the file for editors: completion, words on hover, and errors while typing."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **InventoryFile.model_json_schema()}
