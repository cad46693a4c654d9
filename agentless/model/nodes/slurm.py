"""A Slurm cluster of the inventory, and what `doctor` finds out about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ContainerRuntime = Literal["pyxis", "apptainer", "none"]
"""What runs an image on the compute nodes of a cluster."""


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """How to submit to a cluster. None: as the cluster has it.

    `folder` is where scripts and outputs of jobs lie, on a disk that the login node and its compute nodes share; below
    the home folder unless it is absolute.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    folder: str = ".agentless/slurm"
    container: ContainerRuntime = "none"


@dataclass(frozen=True, slots=True)
class SlurmCheckup:
    """What `doctor` has asked a cluster.

    `lacks` are Slurm's programs that the login node does not have. `ping` says which `slurmctld` answer. `partitions`
    are their states by name, `default` is the one for jobs that name none. `accounts` are those of `user`, each with
    its QOS, known with `accounting` only; `unsaid` is why they are not known. `file_system` is the kind of the one with
    the folder, `closed` the folder in which the login cannot write.
    """

    user: str = ""
    lacks: tuple[str, ...] = ()
    version: str = ""
    ping: tuple[str, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=dict)
    default: str = ""
    accounting: bool = False
    accounts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unsaid: str = ""
    file_system: str = ""
    closed: str = ""

    @property
    def is_up(self) -> bool:
        """Whether a `slurmctld` answers."""
        return any(" is UP" in line for line in self.ping)


@dataclass(frozen=True, slots=True)
class SlurmTrial:
    """What became of a job that was only to show that it runs: the exit code of `srun`, None if it did not start.

    `node` is where it ran, empty if it did not. `is_shared`: it saw the folder of the login node. `gpus` are those that
    nvidia-smi listed, `said` is what `srun` and it said besides, `error` what the script did.
    """

    code: int | None = None
    node: str = ""
    is_shared: bool = False
    gpus: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    error: str = ""
