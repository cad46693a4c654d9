"""The inventory: reads the YAML file into nodes with defaults.

All mistakes of a file are reported at once, one per line as `FILE:LINE:COLUMN: PATH: what is wrong and what is wanted`,
which editors and terminals turn into links. The keys are in `schema`.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentless import paths
from agentless.errors import InventoryError
from agentless.formats.marked_yaml import MAX_MISTAKES, BrokenYaml, Marked, Mistake, Where, lines_of, read_yaml, shown
from agentless.inventory.schema import (
    Amd,
    Cluster,
    Cuda,
    Defaults,
    Foreign,
    Health,
    Idle,
    InventoryFile,
    Kept,
    Node,
    Notify,
    Overflowing,
    Queue,
    Unlisted,
)
from agentless.inventory.ssh_hosts import read_ssh_hosts
from agentless.model.address import Address
from agentless.model.files.posix_path import within
from agentless.model.nodes.node import DESKTOP_BELOW, DESKTOP_PROGRAMS, ForeignPolicy, NodeConfig
from agentless.model.nodes.node_record import HealthPolicy
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.notify import KINDS, NotifyTarget
from agentless.model.scheduling.overflow import Overflow
from agentless.model.tasks.retention import Keep
from agentless.model.text import enumerated
from agentless.model.usage.idle import IdlePolicy
from agentless.rules.usage.fair_share import HALF_LIFE

MAX_BYTES = 512 * 1024
"""The largest file: some 8,000 nodes. Reading a larger one would block the controller."""

FileStamp = tuple[int, int, int]
"""Inode, size and modification time in nanoseconds. An edited file has another stamp."""

_OF_TASKS = "container"
"""The key of the defaults that is none of a node's."""
_UNLISTED = ("wsl", "jetson")
"""Keys for GPUs whose processes nobody lists, by platform."""
_A_NODE = "add a node, for example node1: {host: 10.0.0.11}"
_A_CLUSTER = "{host: login1.example.org, engine: slurm}"
_WANTED = {
    "string_type": "must be text",
    "list_type": "must be a list, like [0, 3]",
    "dict_type": "must be a mapping, like {name: value}",
    "model_type": "must be a mapping, like {host: 10.0.0.11}",
}


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes in the order of the file.

    `shared_dir` is a folder that all nodes share. `image`, `container` (an env) and `policy` are defaults of tasks.
    `health` is the health policy. `half_life` is the half-life of past use in seconds. `learn`: the length of a task
    without a limit is estimated from earlier tasks. `metrics` is the address where they are served, None: only the
    controller's socket. `notify` are the targets of notifications by name. `stamp` is the stamp of the file when it was
    read; `stamp_of(path)` differs after an edit.
    """

    path: Path
    nodes: Mapping[str, NodeConfig]
    shared_dir: str | None
    image: str | None
    container: str | None
    policy: str
    keep: Keep
    health: HealthPolicy
    stamp: FileStamp
    half_life: float
    idle: IdlePolicy
    learn: bool
    metrics: Address | None
    notify: Mapping[str, NotifyTarget]
    clusters: Mapping[str, NodeConfig]
    overflow: Overflow


def load(path: Path) -> Inventory:
    """The inventory in `path`. Raises only InventoryError, with all mistakes."""
    text, stamp = _text(path)
    try:
        marked = read_yaml(text)
    except BrokenYaml as error:
        raise _complaint(path, [error.problem]) from error
    problems = [*marked.problems, *_hostless(marked), *_clusters(marked)]
    try:
        file = InventoryFile.model_validate(marked.data)
    except ValidationError as error:
        problems += [_problem(detail, marked) for detail in error.errors()]
    if problems:
        of_version = [problem for problem in problems if problem.where == ("version",) and problem.where in marked.keys]
        raise _complaint(path, of_version or problems)
    defaults = file.defaults or Defaults()
    nodes = {name: _config(name, node or Node(), defaults, path) for name, node in file.nodes.items()}
    keep = Keep(**(file.keep or Kept()).model_dump(exclude_none=True))
    queue, health = file.queue or Queue(), file.health or Health()
    return Inventory(
        path=path,
        nodes=MappingProxyType(nodes),
        shared_dir=defaults.shared_dir,
        image=defaults.image,
        container=defaults.container,
        policy=queue.policy or "pack",
        keep=keep,
        health=HealthPolicy(health.temperature, health.resume == "automatic"),
        stamp=stamp,
        half_life=queue.half_life or HALF_LIFE,
        idle=IdlePolicy(**(file.idle or Idle()).model_dump(exclude_none=True)),
        learn=queue.learn or False,
        metrics=file.metrics,
        notify=MappingProxyType({name: _target(name, each, path) for name, each in (file.notify or {}).items()}),
        clusters=MappingProxyType({name: _cluster(name, each, path) for name, each in (file.clusters or {}).items()}),
        overflow=_overflow(file.overflow or Overflowing()),
    )


def stamp_of(path: Path) -> FileStamp | None:
    """The current stamp of the file, None if it cannot be read."""
    try:
        return _stamp(path.stat())
    except (OSError, ValueError):
        return None


def _stamp(status: os.stat_result) -> FileStamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _text(path: Path) -> tuple[str, FileStamp]:
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES:
            data = path.read_bytes()
            return data.decode("utf-8"), _stamp(status)
    except FileNotFoundError as error:
        raise InventoryError(f"{path}: no such file; create one with: agentless init") from error
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        problem = Mistake(line, column, (), "not UTF-8 text; save the file as UTF-8")
        raise _complaint(path, [problem]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InventoryError(f"{path}: cannot read the inventory: {reason}") from error
    if stat.S_ISDIR(status.st_mode):
        raise InventoryError(f"{path} is a folder; specify the inventory file in it")
    if not stat.S_ISREG(status.st_mode):
        raise InventoryError(
            f"{path} is not a regular file; agentless rereads the inventory when it changes, so save it as a "
            "regular file"
        )
    raise InventoryError(f"{path} has {status.st_size:,} bytes; the limit is {MAX_BYTES:,}; is this the right file?")


def _cluster(name: str, keys: Cluster, path: Path) -> NodeConfig:
    """The login node of a cluster, and how to submit there."""
    ssh = {key: getattr(keys, key) for key in ("host", "user", "port", "jump", "connection")}
    known = {key: value for key, value in ssh.items() if value is not None}
    if keys.identity_file:
        known["identity_file"] = _located(keys.identity_file, path)
    slurm = {key: getattr(keys, key) for key in ("partition", "account", "qos", "folder", "container")}
    config = SlurmCluster(**{key: value for key, value in slurm.items() if value is not None})
    return NodeConfig(name=name, slurm=config, **{"host": name, **known})


def _overflow(keys: Overflowing) -> Overflow:
    written = Overflow(tuple(dict.fromkeys(keys.clusters or ())))
    return replace(written, after=keys.after) if keys.after else written


def _config(name: str, node: Node, defaults: Defaults, path: Path) -> NodeConfig:
    """The configuration of a node. Its own keys override the defaults, also with null."""
    written = {key: getattr(keys, key) for keys in (defaults, node) for key in keys.model_fields_set}
    if node.labels:
        written["labels"] = {**(defaults.labels or {}), **node.labels}
    if node.env:
        written["env"] = {**(defaults.env or {}), **node.env}
    if node.mounts:
        mounts = (*(defaults.mounts or ()), *node.mounts)
        written["mounts"] = {within("/", mount.target): mount for mount in mounts}.values()
    if written.get("foreign"):
        written["foreign"] = _foreign(node.foreign, defaults.foreign)
    unlisted = {key: written.pop(key, None) for key in _UNLISTED}
    written["assume_free"] = frozenset(key for key, says in unlisted.items() if says and says.assume == "free")
    written["allow_slurm"] = written.pop("allow", None) == "slurm"
    if written.get("cuda"):
        written["cuda"] = written["cuda"].path
    if (amd := written.pop("amd", None)) and amd.seccomp == "unconfined":
        written["unconfined"] = ("amd",)
    known = {key: value for key, value in written.items() if value is not None and key != _OF_TASKS}
    known.setdefault("host", "localhost" if known.get("connection") == "local" else name)
    if "docker" in known:
        known["docker"] = tuple(shlex.split(known["docker"]))
    if "mounts" in known:
        known["mounts"] = tuple(known["mounts"])
    if "exclude_gpus" in known:
        known["exclude_gpus"] = tuple(sorted(set(known["exclude_gpus"])))
    if "address" in known:
        known["addresses"] = tuple(dict.fromkeys(known.pop("address")))
    if "accept_engines" in known:
        known["accept_engines"] = tuple(sorted(set(known["accept_engines"])))
    if "identity_file" in known:
        known["identity_file"] = _located(known["identity_file"], path)
    return NodeConfig(name, **known)


def _target(name: str, written: Notify, path: Path) -> NotifyTarget:
    """A target of notifications. Paths of files are relative to the inventory."""
    kind = next(kind for kind in KINDS if getattr(written, kind) is not None)
    address = getattr(written, kind) if kind not in ("command", "mail") else ""
    is_url = "://" in address
    command = shlex.split(written.command or written.sendmail or "")
    return NotifyTarget(
        name,
        kind,
        events=frozenset(("end",) if written.events is None else written.events),
        owners=tuple(written.owners or ()),
        command=(os.path.expanduser(command[0]), *command[1:]) if command else (),
        url=address if is_url else "",
        url_file=_located(address, path) if address and not is_url else "",
        token_file=_located(written.token_file, path) if written.token_file else "",
        to=tuple(written.mail or ()),
        sender=written.sender,
    )


def _located(written: str, path: Path) -> str:
    """The path of a file that is written in the inventory: absolute, ~/..., or relative to it."""
    return str(path.absolute().parent / os.path.expanduser(written))


def _foreign(*of: Foreign | None) -> ForeignPolicy:
    """The policy of a node: its own keys, else those of the defaults."""
    first, second = (each or Foreign() for each in of)
    ignore = first.ignore if first.ignore is not None else second.ignore
    programs = DESKTOP_PROGRAMS if ignore is None else frozenset(ignore)
    return ForeignPolicy(programs, first.below or second.below or DESKTOP_BELOW)


def _hostless(marked: Marked) -> Iterator[Mistake]:
    """Nodes without a host. Checked in the raw data, since a file with other mistakes has no models."""
    file = _mapping(marked.data)
    usual = _mapping(file.get("defaults")).get("connection")
    hostless = [
        name
        for name, node in _mapping(file.get("nodes")).items()
        if node is None or isinstance(node, dict)
        if _mapping(node).get("host") is None and _mapping(node).get("connection", usual) != "local"
    ]
    aliases = read_ssh_hosts(paths.ssh_config()).machines if hostless else ()
    for name in [name for name in hostless if name not in aliases][: MAX_MISTAKES + 1]:
        text = f"has no host, and ~/.ssh/config has no {shown(name)}; add host: and its address"
        yield Mistake(*marked.keys["nodes", name], ("nodes", name), text + _nearest(name, aliases))


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _clusters(marked: Marked) -> Iterator[Mistake]:
    """Clusters with the name of a node, which targets could mean either; no node although there is no cluster.

    Names of clusters that are none, too.
    """
    file = _mapping(marked.data)
    clusters, nodes = _mapping(file.get("clusters")), file.get("nodes")
    for name in [name for name in clusters if name in _mapping(nodes)][: MAX_MISTAKES + 1]:
        where = ("clusters", name)
        yield Mistake(*marked.keys[where], where, "is the name of a node, too; rename one of them")
    overflow = file.get("overflow")
    at: Where = ("overflow",) if isinstance(overflow, list) else ("overflow", "clusters")
    names = overflow if isinstance(overflow, list) else _mapping(overflow).get("clusters")
    for number, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and name not in clusters:
            place = marked.values[*at, number]
            yield Mistake(*place, (*at, number), f"no cluster {shown(name)} below clusters:{_nearest(name, clusters)}")
    if nodes == {} and not clusters:
        yield Mistake(*marked.values[("nodes",)], ("nodes",), f"is empty; {_A_NODE}")


def _problem(detail: ErrorDetails, marked: Marked) -> Mistake:
    """An error of Pydantic as a mistake, with its place in the file."""
    where: Where = tuple(part for part in detail["loc"] if part != "[key]")
    if where[:2] == ("overflow", "clusters") and where[:2] not in marked.values:
        where = ("overflow", *where[2:])  # the clusters alone
    at_key = detail["type"] == "extra_forbidden" or "[key]" in detail["loc"]
    place = (marked.keys if at_key else marked.values).get(where, (1, 1))
    if detail["type"] == "missing":
        place = marked.keys.get(where[:-1], place)  # what lacks it
    return Mistake(*place, where, _sentence(detail, where))


def _sentence(detail: ErrorDetails, where: Where) -> str:
    value, limits = detail["input"], detail.get("ctx", {})
    is_now = f"is {shown(value)}; "
    match detail["type"]:
        case "extra_forbidden" if where[-1] == "shared_dir":
            return "shared_dir is the same on all nodes; set it under defaults:"
        case "extra_forbidden":
            keys = _model(where).model_fields
            known = f"; valid keys: {', '.join(keys)}"
            return f"unknown key {shown(where[-1])}" + (_nearest(where[-1], keys) or known)
        case "missing" if where == ("version",):
            return "is missing; begin the file with version: 1"
        case "missing" if where[0] == "clusters":
            return "is missing; add engine: slurm"
        case "missing":
            return f"is missing; {_A_NODE}, or nodes: {{}} beside clusters:"
        case "dict_type" if where == ("nodes",) and not value:
            return f"is empty; {_A_NODE}"
        case "model_type" if not where and value is None:
            return "the file is empty; create one with: agentless init --force"
        case "model_type" if not where:
            wanted = f"it must have the keys {enumerated(InventoryFile.model_fields)}"
            return f"the file holds {shown(value)}; {wanted}"
        case "model_type" if where == ("keep",):
            return is_now + "must be a mapping, like {containers: 24h}"
        case "model_type" if where == ("queue",):
            return is_now + "must be a mapping, like {policy: spread}"
        case "model_type" if where == ("health",):
            return is_now + "must be a mapping, like {temperature: 90}"
        case "dict_type" if where == ("clusters",):
            return is_now + f"must be a mapping, like {{hpc: {_A_CLUSTER}}}"
        case "model_type" if where[0] == "clusters":
            return is_now + f"must be a mapping, like {_A_CLUSTER}"
        case "model_type" if where == ("overflow",):
            return is_now + "must be a list of clusters, like [hpc], or a mapping, like {clusters: [hpc], after: 30min}"
        case "list_type" if where == ("overflow", "clusters"):
            return is_now + "must be a list of clusters, like [hpc]"
        case "model_type" if where == ("idle",):
            return is_now + "must be a mapping, like {report: 30min}"
        case "model_type" if where[0] == "notify":
            return "must be a mapping, like {ntfy: https://ntfy.sh/my-topic, events: [fail]}"
        case "list_type" if where[0] == "notify":
            return is_now + "must be a list, like [ann@example.com] or [end, fail]"
        case "literal_error":
            return is_now + f"must be {limits['expected']}" + _nearest(value, re.findall("'(.*?)'", limits["expected"]))
        case "model_type" if where[-1] == "cuda":
            return is_now + "must be a mapping, like {path: /usr/local/cuda-12.4}"
        case "model_type" if where[-1] == "foreign":
            return is_now + "must be a mapping, like {ignore: [Xorg, firefox], below: 512MiB}"
        case "model_type" if where[-1] in _UNLISTED:
            return is_now + "must be a mapping, like {assume: free}"
        case "list_type" if where[-1] == "ignore":
            return is_now + "must be a list of programs, like [Xorg, firefox]"
        case "model_type" if where[-1] == "amd":
            return is_now + "must be a mapping, like {seccomp: unconfined}"
        case "list_type" if where[-1] == "mounts":
            return is_now + "must be a list, like [/data:/data:ro]"
        case "list_type" if where[-1] == "address":
            return is_now + "must be a list of addresses, like [gpu1-vpn, 192.0.2.7:2222]"
        case "list_type" if where[-1] == "accept_engines":
            return is_now + "must be a list of users, like [alice], or [all]"
        case "greater_than_equal":
            return is_now + f"must be at least {limits['ge']}"
        case "less_than_equal":
            return is_now + f"must be at most {limits['le']}"
        case "value_error":
            no_value = "[key]" in detail["loc"] or where[-1] == "mounts" or where[0] == "notify"  # may be a secret
            return ("" if no_value else is_now) + str(limits["error"])
        case kind:
            return is_now + _WANTED[kind]


def _model(where: Where) -> type[BaseModel]:
    if len(where) == 1:
        return InventoryFile
    if where[0] == "notify":
        return Notify
    inner: dict[str, type[BaseModel]] = {
        "amd": Amd,
        "cuda": Cuda,
        "foreign": Foreign,
        **dict.fromkeys(_UNLISTED, Unlisted),
    }
    for key in where[1:-1]:
        if str(key) in inner:
            return inner[str(key)]
    models: dict[str, type[BaseModel]] = {
        "defaults": Defaults,
        "keep": Kept,
        "queue": Queue,
        "health": Health,
        "idle": Idle,
        "overflow": Overflowing,
        "clusters": Cluster,
    }
    return models.get(str(where[0]), Node)


def _nearest(word: object, words: Iterable[str]) -> str:
    found = get_close_matches(str(word), list(words), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _complaint(path: Path, problems: Iterable[Mistake]) -> InventoryError:
    return InventoryError(lines_of(path, problems))
