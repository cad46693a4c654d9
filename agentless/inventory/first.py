"""The first inventory, for `agentless init`: known hosts, and an explanation of every key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import yaml

from agentless.errors import InventoryError, UsageError
from agentless.inventory.ssh_hosts import SshHost, parse_login
from agentless.model.text import cut, printable

DEFAULT_IMAGE = "python:3.12-slim"
"""The default image if none is named."""
_HEAD = """\
# The machines that agentless may use. They need an SSH server and Docker, nothing else.
# List them with `agentless nodes`, check them with `agentless doctor`. All keys: docs/inventory.md.
# For completion in an editor, run `agentless inventory schema > inventory.schema.json` and begin this file with
# `# yaml-language-server: $schema=inventory.schema.json`.
version: 1

# Settings of all nodes; a node can override each of them. Remove the '# ' in front of a key to use it.
# Unset keys fall back to ~/.ssh/config.
defaults:
  image: {image:<26}  # for tasks that specify no image
  # user: ubuntu                      # login name
  # port: 22                          # SSH port
  # identity_file: ~/.ssh/id_ed25519  # private key
  # jump: bastion                     # jump host, as for ssh -J
  # connection: asyncssh              # or paramiko; local: this machine, without SSH
  # docker: sudo docker               # if your user needs sudo for Docker
  # container: torch                  # an env instead of the image; agentless copies it to the nodes
  # shared_dir: /mnt/shared           # folder shared by all nodes; /shared in a task
  # local_temp: /scratch              # folder for temporary files on each node; /local_temp in a task
  # labels: {{site: lab}}               # to select nodes, as in --on site=lab
  # mounts: ["/data:/data:ro"]        # mounts of every container; a task's own --mount wins
  # env: {{HF_HOME: /shared/hf}}        # variables of every task; a task's own --env wins
  # network: host                     # Docker network of every container
  # shm_size: 8GiB                    # size of /dev/shm in every container
  # privileged: true                  # every container sees all GPUs and devices of its node
  # cuda: {{path: /opt/cuda-12.4}}      # for tasks without a container; default: the newest in /usr/local
  # foreign: {{below: 1GiB}}            # desktop programs keep no task from a GPU while they use less than this
  # wsl: {{assume: free}}               # a node in WSL2: only tasks use its GPU; nobody else can tell
  # jetson: {{assume: free}}            # the same for a Jetson
  # amd: {{seccomp: unconfined}}        # for ROCm images that need system calls that the engine's filter denies
  # exclude_gpus: [0]                 # GPUs that agentless never uses
  # accept_engines: [alice]           # users whose rootless Docker may run beside the node's engine

# Messages about tasks: `agentless notify test phone` sends one. More kinds of target: docs/how-to/watch/notify.md
# notify:
#   phone: {{ntfy: https://ntfy.sh/my-topic, events: [end, fail]}}

# Slurm clusters by name: `agentless submit hpc 2xA100 -- python train.py` is a job there.
# clusters:
#   hpc: {{host: login1, engine: slurm, partition: gpu}}
# overflow: [hpc]                     # for tasks that would wait longer than 30min for the nodes

# Nodes by name: `agentless submit NAME::0 -- nvidia-smi` runs on GPU 0 of node NAME.
# Delete the machines that must not run tasks. Where slurmd runs, none does unless the node has `allow: slurm`.
nodes:
"""


def named_hosts(hosts: Iterable[str]) -> dict[str, SshHost]:
    """Hosts by the names of their nodes, which are valid and unique. Each is an alias of ~/.ssh/config or a login.

    Raises UsageError if there is no host, or an invalid one.
    """
    nodes: dict[str, SshHost] = {}
    for text in dict.fromkeys(hosts):
        login = parse_login(text)
        if not login:
            raise UsageError(f"host {text!r}: use [user@]host[:port], for example ubuntu@10.0.0.11:2222")
        nodes[_node_name(login.host, nodes)] = login
    if not nodes:
        raise UsageError("no hosts in ~/.ssh/config; specify one: agentless init user@host")
    return nodes


def first_inventory(
    nodes: Mapping[str, SshHost],
    image: str | None = None,
    *,
    left_out: Mapping[str, tuple[SshHost, str]] = MappingProxyType({}),
    git: Sequence[str] = (),
) -> str:
    """The text of an inventory.

    `left_out` are nodes with the reason why they are only a comment, `git` the aliases of git servers, likewise.
    """
    lines = [f"  {_line(name, host)}\n" for name, host in nodes.items()] or ["  {}\n"]
    for name, (host, why) in left_out.items():
        lines.append(f"  # {_line(name, host)}  # left out: {cut(printable(why), 150)}\n")
    if git:
        lines.append(f"  # Left out, because they are git servers: {', '.join(git)}\n")
    return _HEAD.format(image=_scalar(image or DEFAULT_IMAGE)) + "".join(lines)


def check_absent(path: Path, *, force: bool) -> None:
    """Raise InventoryError if there is an inventory, unless it may be replaced."""
    if path.exists() and not force:
        raise InventoryError(f"{path} already exists; edit it, or replace it with --force")


def write_first(path: Path, text: str, force: bool) -> None:
    """Write `text` to `path` atomically, and create its folder. An existing file is only replaced with `force`."""
    path = Path(os.path.realpath(path))
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not force:
                path.touch(exist_ok=False)  # claims the name, so that no other file is replaced
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError):
            check_absent(path, force=False)
        raise InventoryError(f"cannot write {path}: {error.strerror}; choose another path") from error


def _line(name: str, host: SshHost) -> str:
    keys = (f"{key}: {_scalar(value)}" for key, value in host._asdict().items() if value)
    return f"{_scalar(name)}: {{{', '.join(keys)}}}"


def _node_name(host: str, taken: Container[str]) -> str:
    base = re.sub(r"[^A-Za-z0-9._-]", "-", host).lstrip("._-") or "node"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def _scalar(value: str | int) -> str:
    """A YAML scalar. It is quoted if a parser could read it as another type."""
    if isinstance(value, int):
        return str(value)
    node = yaml.compose(value, Loader=yaml.SafeLoader) if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", value) else None
    return value if node and node.tag == "tag:yaml.org,2002:str" else json.dumps(value, ensure_ascii=False)
