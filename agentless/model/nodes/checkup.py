"""What `doctor` finds out about a node, beside what is known of it anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentless.errors import AgentlessError
from agentless.model.nodes.sessions import Sessions

Manager = Literal["apt", "dnf", "zypper", "pacman", "apk", ""]
"""A package manager, empty if the distribution is not known."""
Step = Literal["route", "name", "tcp", "ssh", ""]


@dataclass(frozen=True, slots=True)
class Approach:
    """The way to a node's SSH server, as the controller sees it without a login.

    `name`, `host` and `port` are of the first machine on the way, which is the only one that can be looked at: the node
    itself, or a jump host. `via` is what stands between, in words. `proxied`: a program connects, so nothing can be
    looked at. `addresses` are those of the host, `banner` is the server's greeting. `stopped` is the step that failed,
    with its `error`. `login` is the user. `usual` is the greeting of an SSH server at port 22, if `port` is another one
    at which nobody answers.
    """

    name: str = ""
    host: str = ""
    port: int = 22
    login: str = ""
    via: str = ""
    proxied: bool = False
    addresses: tuple[str, ...] = ()
    banner: str = ""
    stopped: Step = ""
    error: str = ""
    usual: str = ""


@dataclass(frozen=True, slots=True)
class Contact:
    """How far the controller has come with a node. `failure` is why no further, None if it answers.

    `logged_in`: the last try got through the login. `address` is the one of several at which it answers, else empty.
    `noise` is how many bytes its login shell prints before the first command, `began` how many seconds it takes until
    then; None if not known.
    """

    failure: AgentlessError | None = None
    logged_in: bool = False
    address: str = ""
    sessions: Sessions | None = None
    noise: int | None = None
    began: float | None = None


Problem = Literal["", "missing", "not writable", "full", "hangs"]
"""What keeps tasks from a folder or file, empty if nothing does."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the node, or a file, that the inventory names under `key`. A `writable` one is for the login."""

    key: str
    path: str
    problem: Problem = ""
    writable: bool = True


@dataclass(frozen=True, slots=True)
class System:
    """How the node is administered: its distribution, and what a command for an administrator looks like.

    `id` and `like` are as in /etc/os-release. `is_root`: the login needs no `sudo`.
    """

    id: str = ""
    like: tuple[str, ...] = ()
    title: str = ""
    manager: Manager = ""
    has_systemd: bool = True
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """What the node says of itself. Unreadable values are None, or empty.

    `shell` is the login shell, `path` the PATH of a login without a terminal, `lacks` are programs that are not there.
    `ahead` is by how many seconds its clock is ahead of ours, give or take `unsure`. Sizes are in bytes. `cgroups` is
    `v1`, `v2` or `hybrid`.
    """

    system: System = field(default_factory=System)
    user: str = ""
    shell: str = ""
    path: str = ""
    lacks: tuple[str, ...] = ()
    has_flock: bool | None = None
    ahead: float | None = None
    unsure: float = 0.0
    synchronized: bool | None = None
    memory: int | None = None
    memory_available: int | None = None
    cgroups: str = ""
    kernel: str = ""
    architecture: str = ""
    folders: tuple[Folder, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of the node, in bytes."""

    path: str
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Socket:
    """The socket of an engine. `owner` is `USER:GROUP MODE`."""

    path: str
    exists: bool
    writable: bool
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EngineCheckup:
    """The engine, as it answers to `info`, beside what `EngineFacts` has.

    `program` is the path of its command, None if that is not there; `elsewhere` is where it would be. `fault` is what
    keeps it from answering, and `words` are its own. `registry` is the one of the node's image, `unreachable` is what
    the engine says of it, None if it answers. `network` is that of the inventory, empty if every engine has it, and
    `has_network` whether it is there, None if unknown. `rootless`: by its socket, it is the login's own. `has_podman`:
    there is a podman beside Docker, or without it.
    """

    program: str | None = None
    elsewhere: str = ""
    socket: Socket | None = None
    fault: Literal["", "denied", "sudo", "down", "other"] = ""
    words: str = ""
    disk: Disk | None = None
    driver: str = ""
    registry: str = ""
    unreachable: str | None = None
    network: str = ""
    has_network: bool | None = None
    rootless: bool = False
    has_podman: bool = False


@dataclass(frozen=True, slots=True)
class Checkup:
    """Everything that `doctor` has asked a node. `silence` is why one that is online did not answer."""

    approach: Approach | None = None
    contact: Contact = field(default_factory=Contact)
    machine: Machine | None = None
    engine: EngineCheckup | None = None
    silence: str | None = None


SYSTEM = System()
"""Of a node that has not said what it is."""
MANAGERS: Mapping[str, Manager] = {
    "debian": "apt", "ubuntu": "apt",
    "fedora": "dnf", "rhel": "dnf", "centos": "dnf", "rocky": "dnf", "almalinux": "dnf", "ol": "dnf", "amzn": "dnf",
    "suse": "zypper", "opensuse": "zypper", "sles": "zypper",
    "arch": "pacman", "alpine": "apk",
}  # fmt: skip
"""By `ID` or a word of `ID_LIKE` in /etc/os-release."""
