"""Why a job waits, in words: the reasons of Slurm, see "Job reason codes" in squeue(1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REASONS: Mapping[str, str] = {
    "Resources": "waits for free resources",
    "Priority": "jobs with a higher priority are ahead of it",
    "BeginTime": "its start time has not come",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that can no longer end as required",
    "JobArrayTaskLimit": "as many tasks of its array run as may at the same time",
    "JobHeldUser": "is held by its owner; on the cluster, run: scontrol release {job}",
    "JobHeldAdmin": "is held by an administrator of the cluster",
    "Licenses": "waits for a license",
    "Reservation": "waits for its reservation to begin",
    "ReqNodeNotAvail": "the nodes it wants are not available now",
    "Nodes required for job are DOWN": "the nodes{of} that could run it are down, drained, or kept for other jobs",
    "NodeDown": "a node that it wants is down",
    "BadConstraints": "no node of the cluster has what it wants",
    "PartitionDown": "{partition} is down",
    "PartitionInactive": "{partition} is closed",
    "PartitionNodeLimit": "it wants more nodes than {partition} allows; use fewer with --nodes",
    "PartitionConfig": "it wants more than {partition} allows; use fewer --cores, --gpus or less --memory",
    "PartitionTimeLimit": "its time limit is higher than {partition} allows; use a lower --time-limit",
    "InvalidAccount": "its account is not valid; correct account: in the inventory",
    "InvalidQOS": "its QOS is not valid; correct qos: in the inventory",
    "QOSJobLimit": "its QOS has as many jobs as it may have",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "tidies up after its last run, before it starts again",
    "SystemFailure": "Slurm, the network or a file system has failed",
    "launch failed requeued held": "could not be started and is held; on the cluster, run: scontrol release {job}",
    "None": "Slurm has not looked at it yet",
}


def reason_words(reason: str, job: str, partition: str | None = None) -> str:
    """The reason in words; one that is not known here as Slurm has it. `partition` is None for Slurm's own choice."""
    name = reason.partition(",")[0].strip()
    words = _REASONS.get(name)
    if words is None and re.fullmatch(r"(Assoc|QOS)[A-Za-z]+", name):
        words = f"a limit of its {'account' if name.startswith('Assoc') else 'QOS'} is reached ({name})"
    if words is None:
        words = name or "Slurm gives no reason"
    named = f"partition {partition}" if partition else "its partition"
    of = f" of {named}" if partition else ""
    return words.replace("{job}", job).replace("{partition}", named).replace("{of}", of)
