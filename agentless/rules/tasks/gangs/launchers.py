"""What starts the command of a gang's member, by `--launcher`."""

from __future__ import annotations

import re
from collections.abc import Callable

from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec

_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


def launched_command(spec: TaskSpec, script: Callable[..., str]) -> tuple[str, ...]:
    """The words that a container runs. `script` renders a template of mpirun with its values."""
    gang = spec.gang
    if gang is None or gang.launcher is None or not gang.peers or gang.port is None:
        return spec.command
    if gang.launcher == "mpirun":
        return ("sh", "-c", _around_mpirun(gang, script, on_host=spec.network == "host"), "sh", *spec.command)
    return (*_torchrun(gang), *_python(spec.command))


def command_on_cluster(spec: TaskSpec) -> tuple[str, ...]:
    """The words that each node of a job runs. Slurm says where they run, so torchrun reads that from variables."""
    if spec.multinode is None or spec.multinode.launcher is None:
        return spec.command
    return ("torchrun", *_python(spec.command))


def _around_mpirun(gang: Gang, script: Callable[..., str], *, on_host: bool) -> str:
    """On a network of its own, a container has other interfaces and addresses."""
    me = gang.peers[gang.rank]
    if gang.rank:
        listen = me.address if me.interface and on_host else ""
        return script("container-mpirun-other.sh.j2", port=gang.port, listen=listen)
    return script(
        "container-mpirun-first.sh.j2",
        port=gang.port,
        others=[peer.address for peer in gang.peers[1:]],
        interface=gang.interface if on_host else None,
        processes=sum(peer.slots for peer in gang.peers),
    )


def _torchrun(gang: Gang) -> tuple[str, ...]:
    return (
        "torchrun",
        f"--nnodes={gang.size}",
        f"--node-rank={gang.rank}",
        f"--nproc-per-node={gang.peers[gang.rank].slots}",
        f"--master-addr={gang.peers[0].address}",
        f"--master-port={gang.port}",
    )


def _python(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command as torchrun wants it: without `python`, which it starts itself unless told not to."""
    if len(command) > 1 and _PYTHON.fullmatch(command[0]) and (command[1] == "-m" or not command[1].startswith("-")):
        return command[1:]
    if command and (command[0].endswith(".py") or command[0] == "-m"):
        return command
    return ("--no-python", *command)
