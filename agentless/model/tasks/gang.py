"""A gang: tasks that are placed, started and ended as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from agentless.errors import UsageError
from agentless.model.tasks.task_id import first_try

Launcher = Literal["torchrun", "mpirun"]
OnMemberFailure = Literal["stop", "continue"]

HOSTFILE = "/agentless/hostfile"
"""The path in a container of the file with the addresses of a gang, as MPI reads it."""
GANG_KEY = "AGENTLESS_GANG_KEY"
"""The variable with the SSH key by which mpirun starts processes in the other containers of a gang."""
MAX_GANG = 256
"""The most members of a gang. The label of each one names all of them."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A member as the others see it: its node, the address by which they reach it, and how many GPUs it has there.

    `interface` is the network interface that has the address, None if unknown.
    """

    node: str
    address: str
    gpus: int = 0
    interface: str | None = None

    @property
    def slots(self) -> int:
        """The number of processes that it is to run: one for each GPU, at least one."""
        return max(1, self.gpus)


@dataclass(frozen=True, slots=True)
class Gang:
    """Which member of which gang a task is.

    `members` are the ids of their first tries, by rank; the first one is the id of the gang. `alike` is how many
    members, itself included, need the same. `launcher` starts the command, None: it starts as it is. With
    `on_member_failure` "continue", the end of one member does not end the others. `peers`, by rank, and `port` are
    known while the gang has its places.
    """

    size: int
    rank: int = 0
    members: tuple[str, ...] = ()
    launcher: Launcher | None = None
    on_member_failure: OnMemberFailure = "stop"
    peers: tuple[Peer, ...] = ()
    port: int | None = None
    alike: int = 1

    def __post_init__(self) -> None:
        # Labels are untrusted.
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError("the port of a gang is from 1 to 65535")
        if not 0 <= self.rank < self.size <= MAX_GANG:
            raise ValueError(f"a gang has 2 to {MAX_GANG} members, each with a rank below their number")
        if len(self.members) not in (0, self.size) or len(self.peers) not in (0, self.size):
            raise ValueError("a gang lists all of its members or none; omit members and peers")

    @property
    def id(self) -> str:
        """The id of the gang: the first try of its first member."""
        return self.members[0] if self.members else ""

    def of_try(self, task_id: str) -> tuple[str, ...]:
        """The ids of all members in the try to which this task belongs."""
        suffix = task_id.removeprefix(first_try(task_id))
        return tuple(member + suffix for member in self.members)

    def key(self, task_id: str) -> str:
        """The id of the first member in the try to which this task belongs: it names that try of the gang."""
        return self.id + task_id.removeprefix(first_try(task_id))

    @property
    def hostfile(self) -> str:
        """A line for each member, by rank: `10.0.0.1 slots=8`; empty while they have no addresses."""
        return "".join(f"{peer.address} slots={peer.slots}\n" for peer in self.peers)

    @property
    def interface(self) -> str | None:
        """The network interface by which all members reach each other, None if they differ in it."""
        names = {peer.interface for peer in self.peers}
        return names.pop() if len(names) == 1 else None

    def variables(self, *, on_host: bool = True) -> Mapping[str, str]:
        """What a member is told about the gang; on a network of its own, a container has other interfaces."""
        if not self.peers or self.port is None:
            return {}
        first, me = self.peers[0], self.peers[self.rank]
        interfaces = {"NCCL_SOCKET_IFNAME": f"={me.interface}", "GLOO_SOCKET_IFNAME": me.interface}
        return {
            "AGENTLESS_NODE_RANK": str(self.rank),
            "AGENTLESS_NNODES": str(self.size),
            "AGENTLESS_NODES": ",".join(peer.node for peer in self.peers),
            "AGENTLESS_HOSTS": ",".join(
                f"[{peer.address}]:{peer.slots}" if ":" in peer.address else f"{peer.address}:{peer.slots}"
                for peer in self.peers
            ),
            "AGENTLESS_HOSTFILE": HOSTFILE,
            "NODE_RANK": str(self.rank),
            "MASTER_ADDR": first.address,
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str(sum(peer.slots for peer in self.peers)),
            "LOCAL_WORLD_SIZE": str(me.slots),
            **({key: name for key, name in interfaces.items() if name} if me.interface and on_host else {}),
        }


@dataclass(frozen=True, slots=True)
class MultiNode:
    """A task that is one job of a cluster on several nodes: Slurm starts its command once on each of them."""

    size: int
    launcher: Launcher | None = None
    on_member_failure: OnMemberFailure = "stop"

    def __post_init__(self) -> None:
        # Labels are untrusted.
        if not 2 <= self.size <= MAX_GANG:
            raise ValueError(f"a job on several nodes has 2 to {MAX_GANG}")


def member_of(size: int, launcher: str | None, on_member_failure: str) -> Gang:
    """The first member of a gang of this size; raises UsageError."""
    if not 2 <= size <= MAX_GANG:
        raise UsageError(f"--nodes {size}: use 2 to {MAX_GANG}, or omit it for one task")
    if launcher not in (None, *get_args(Launcher)):
        raise UsageError(f"--launcher {str(launcher)[:80]!r}: use torchrun, mpirun or none")
    if on_member_failure not in get_args(OnMemberFailure):
        raise UsageError(f"--on-member-failure {str(on_member_failure)[:80]!r}: use stop or continue")
    if launcher == "mpirun" and on_member_failure == "continue":
        raise UsageError(
            "--launcher mpirun and --on-member-failure continue cannot be combined, because rank 0 starts all others; "
            "omit one"
        )
    return Gang(
        size, launcher=cast(Launcher | None, launcher), on_member_failure=cast(OnMemberFailure, on_member_failure)
    )


def check_gang(gang: Gang) -> None:
    """Raise UsageError for a gang of a single member."""
    member_of(gang.size, gang.launcher, gang.on_member_failure)
