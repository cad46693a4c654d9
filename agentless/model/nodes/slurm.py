"""A Slurm cluster of the inventory."""

from __future__ import annotations

from dataclasses import dataclass


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
