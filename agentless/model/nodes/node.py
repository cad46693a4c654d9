"""A node: its configuration in the inventory, and its own facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentless.model.containers.container import Container
from agentless.model.nodes.engine import ToolkitFacts
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import Mount

ImageStore = Literal["classic", "containerd"]
TransportName = Literal["asyncssh", "paramiko", "local"]

Control = Literal["memory", "cpu", "cpuset", "freezer"]
"""A control group by which an engine limits memory or cores, pins to a NUMA node, or pauses."""


DESKTOP_PROGRAMS = frozenset({
    "X", "Xorg", "Xwayland",
    "gnome-shell", "mutter", "mutter-x11-frames", "gdm", "gdm-x-session",
    "kwin_wayland", "kwin_x11", "plasmashell", "ksplashqml", "krunner", "sddm", "sddm-greeter", "sddm-greeter-qt6",
    "cosmic-comp", "cosmic-greeter", "cinnamon", "muffin", "marco", "xfwm4", "budgie-wm", "gala", "picom",
    "sway", "Hyprland", "weston", "wayfire", "river", "niri", "labwc", "gamescope",
    "firefox", "firefox-bin", "firefox-esr", "chrome", "chromium", "brave", "msedge", "opera", "vivaldi-bin",
    "code",
})  # fmt: skip
"""Display servers, compositors, browsers and VS Code. Not `electron`, which is any program that is built with it."""
DESKTOP_BELOW = 512 << 20
"""Bytes of GPU memory below which desktop programs are ignored. A model of any use needs more."""


NAMED = 8
"""The most nodes that are named where the same is said of all."""


@dataclass(frozen=True, slots=True)
class ForeignPolicy:
    """Which foreign processes keep no task from a GPU: programs of these names, while they use less than `below` bytes.

    Their names are file names, and all of them on a GPU count together.
    """

    ignore: frozenset[str] = DESKTOP_PROGRAMS
    below: int = DESKTOP_BELOW


def count_cpus(cpuset: str) -> int:
    """How many CPUs `0-15,32-47` are: 32."""
    total = 0
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        total += max(0, int(last or first) - int(first) + 1)
    return total


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node of the inventory, with defaults. None means: as in `~/.ssh/config`.

    `mounts`, `env`, `privileged`, `network` and `shm_size` are settings of its tasks, see `rules/tasks/settings`.
    `cuda` is the folder of CUDA for tasks without a container, None: whichever the node has.
    `addresses` are those besides `host`, as in `address:` of the inventory. `foreign` says which processes of others
    keep no task from a GPU. On the platforms in `assume_free`, a GPU whose processes are not listed counts as free.
    `unconfined` are the vendors of GPUs with which a container has no filter of system calls. `fabric` is the path of
    the node in the network by which nodes reach each other, like `pod1/leaf2`, and `fabric_address` its address there.
    `allow_slurm`: tasks may run there although Slurm manages it.
    With `slurm`, it is no machine but the login node of a cluster, which has a queue of its own.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump: str | None = None
    connection: str = "asyncssh"
    docker: tuple[str, ...] = ("docker",)
    image: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    exclude_gpus: tuple[int, ...] = ()
    local_temp: str | None = None
    accept_engines: tuple[str, ...] = ()
    shared_dir: str | None = None
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False
    network: str | None = None
    shm_size: int | None = None
    cuda: str | None = None
    addresses: tuple[str, ...] = ()
    foreign: ForeignPolicy = ForeignPolicy()
    assume_free: frozenset[str] = frozenset()
    unconfined: tuple[str, ...] = ()
    fabric: str | None = None
    fabric_address: str | None = None
    allow_slurm: bool = False
    slurm: SlurmCluster | None = None

    @property
    def cluster(self) -> SlurmCluster:
        """Its settings as a cluster, as far as it has any."""
        return self.slurm or SlurmCluster()

    @property
    def has_podman(self) -> bool:
        """Whether the engine is podman, by the file name of its program."""
        return self.docker[-1].rpartition("/")[2] == "podman"

    @property
    def engine_title(self) -> str:
        """The name of the engine, for messages."""
        return "podman" if self.has_podman else "Docker"

    @property
    def has_envs(self) -> bool:
        """Whether the engine supports envs."""
        return not self.has_podman


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node: its CPUs in cpuset syntax (`0-15,32-47`) and the PCI bus ids of the GPUs nearest to it.

    `memory_mib` is its own memory, None if it could not be read.
    """

    id: int
    cpus: str
    gpus: tuple[str, ...] = ()
    memory_mib: int | None = None

    @property
    def cores(self) -> int:
        """How many CPUs it has."""
        return count_cpus(self.cpus)


@dataclass(frozen=True, slots=True)
class PciCard:
    """A card on the PCI bus: the id of its maker (`0x10de`), and its driver in the kernel, None without one."""

    bus: str
    maker: str
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class WslFacts:
    """WSL2. `has_gpu`: Windows shares a GPU with it. `has_nvidia`, `has_amd`: Windows has a driver of that maker.

    `others` are files of a Linux driver, which must not be there.
    """

    has_gpu: bool = False
    has_nvidia: bool = False
    has_amd: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine. Unreadable values are None. `boot` is the boot id of its kernel.

    `cards` can compute, whether or not agentless can use them. `system` names the distribution, and those like it.
    `wsl` is None outside WSL2. `jetson` is the model of a Jetson, empty for any other machine. `removable` are
    the bus ids of external GPUs. `slurmd` is whether the daemon of Slurm runs there, None if that is not known.
    """

    cores: int | None = None
    memory_mib: int | None = None
    numa: tuple[NumaNode, ...] = ()
    boot: str | None = None
    cards: tuple[PciCard, ...] = ()
    system: tuple[str, ...] = ()
    wsl: WslFacts | None = None
    jetson: str = ""
    removable: tuple[str, ...] = ()
    slurmd: bool | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The container engine of a node.

    `error` is a sentence with the fix if the engine cannot be used. `toolkits` say by vendor whether it can give GPUs
    to containers. `containers` are those with agentless labels, None if they could not be listed. `listed` are their
    ids with the engine's words for their states. `clock` is by how many seconds its clock is ahead of ours. `id` is the
    ID of the engine, if it has one. `lacks` are missing control groups: Docker ignores limits by them with a warning.
    `cgroup_parent` is the control group in which it puts containers, None if it cannot create groups in it.
    `store` is where Docker keeps images: its classic store, or containerd's. `cgroup_version` is that of the control
    groups. `cdi` are the CDI devices that the engine knows, empty if it is not known which. `root` is the folder in
    which the engine keeps images and containers. `keeps` identifies where Docker keeps containers: those that it keeps
    elsewhere do not show; of a cluster, which Slurm it is. None if it is unknown. `note` is what else is known of such
    an engine, in words. `desktop`: it is Docker Desktop. `secrets` are tasks whose secrets lie on the disk of a
    cluster.
    """

    version: str | None = None
    toolkits: Mapping[str, ToolkitFacts] = field(default_factory=dict)
    error: str | None = None
    containers: tuple[Container, ...] | None = None
    listed: Mapping[str, str] | None = None
    clock: float = 0.0
    lacks: frozenset[Control] = frozenset()
    id: str | None = None
    cgroup_parent: str | None = None
    store: ImageStore | None = None
    cgroup_version: int | None = None
    rootless: bool = False
    cdi: frozenset[str] = frozenset()
    note: str = ""
    root: str | None = None
    desktop: bool = False
    secrets: tuple[str, ...] = ()
    keeps: str | None = None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A launch failed for a reason of the node, `reason` in words. See `rules/nodes/breakdown`.

    `fault` is what does not work, as in `errors.NodeBroken`. `bare` is whether the failed task was to run without a
    container. The next launch may be tried from `again` (Unix seconds) on, `pause` seconds after the last failure.
    """

    reason: str
    fault: Literal["engine", "gpus", "start"]
    bare: bool
    again: float
    pause: float

    def is_tried_by(self, *, bare: bool, gpus: bool) -> bool:
        """Whether a start of such a task shows that the breakdown is over."""
        return self.bare == bare and (gpus or self.fault != "gpus")


def naming(node: str, text: str, otherwise: str | None = None) -> str:
    """A text that names its node once: as it is if it begins with the name, else prefixed, or `otherwise`."""
    return text if text.startswith(f"{node} ") else f"{otherwise or node}: {text}"


def all_named(nodes: Sequence[str]) -> str:
    """Nodes of which the same is said: `node1, node2`, and of very many the first."""
    more = len(nodes) - NAMED
    return ", ".join(nodes[:NAMED]) + (f" and {more} more" if more > 0 else "")


def with_node(node: str, sentence: str) -> str:
    """A complaint that names its node once: as it is if it has `NODE` at its beginning or `on NODE`, else prefixed."""
    named = re.search(rf"(?:^|\b(?:of|on|for) ){re.escape(node)}(?![\w.-])", sentence)
    return sentence if named else f"{node}: {sentence}"


def unreachable(node: str, reason: str | None) -> str:
    """The message that a node cannot be reached, and why."""
    return naming(node, reason or "no answer yet", f"{node} cannot be reached")
