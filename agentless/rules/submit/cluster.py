"""What a task on a cluster with a queue of its own may ask for."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Container, Sequence
from dataclasses import replace
from itertools import pairwise

from agentless.errors import UsageError
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.needs import NODE_NAME, is_counted
from agentless.model.tasks.gang import MultiNode
from agentless.model.tasks.spec import TaskSpec, on_one_node
from agentless.rules.files.job_tree import check_job_tree, place_in_job
from agentless.rules.views.nearest import nearest

_INSTEAD = {
    "--container": "use --image, or omit it for a task without an image",
    "--mount without --image": "a task without an image sees the disks of its node",
    "artifacts": "write to a shared disk of the cluster, or use --output",
    "--volume": "write to a shared disk of the cluster",
}
"""What to do instead of options that mean nothing there."""
_OF_THE_SHELL = frozenset({
    "BASHOPTS", "BASHPID", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
    "BASH_VERSINFO", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO",
    "OPTIND", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID", "_",
})  # fmt: skip
"""Variables that bash or dash change, do not export, or end at: the scripts of a job run in them."""


def is_place_alone(target: str) -> bool:
    """Whether a target is the name of a node or a cluster, without GPUs."""
    return NODE_NAME.fullmatch(target) is not None and not is_counted(target)


def may_be_joined(targets: Sequence[str]) -> bool:
    """Whether some of these targets could be a cluster and the GPUs there: `hpc` and `2xA100`."""
    return any(is_place_alone(one) and is_counted(other) for one, other in pairwise(targets))


def joined(targets: Sequence[str], clusters: Container[str]) -> tuple[str, ...]:
    """The targets, where a cluster and the GPUs behind it are one."""
    found = list[str]()
    for target in targets:
        if found and found[-1] in clusters and is_counted(target):
            found[-1] += f" {target}"
        else:
            found.append(target)
    return tuple(found)


def jobs_of(specs: Sequence[TaskSpec], clusters: Container[str]) -> tuple[TaskSpec, ...]:
    """The specs, of which each gang on a cluster is one task. Jobs of workflows stay, since others count them."""
    found = list[TaskSpec]()
    for spec in specs:
        gang = spec.gang
        if gang is None or spec.job is not None or (spec.needs.node or "") not in clusters:
            found.append(spec)
        elif gang.rank == 0:
            nodes = MultiNode(gang.size, gang.launcher, gang.on_member_failure)
            found.append(replace(spec, gang=None, multinode=nodes))
    return tuple(found)


def check_for_nodes(spec: TaskSpec) -> None:
    """Raise UsageError for a task on own nodes that only a cluster can run."""
    node = spec.needs.node
    if node and spec.gang and spec.gang.alike > 1:
        raise UsageError(on_one_node(spec.gang.size, node))
    if spec.workdir is not None and not spec.workdir.startswith("/") and not spec.on_node_itself:
        raise UsageError(f"--workdir {spec.workdir[:80]!r}: use an absolute path in the container, like /data")
    if spec.multinode is not None:
        raise UsageError("multinode: only a cluster can run a job on several nodes; use gang")


def check_there_are_nodes(spec: TaskSpec, nodes: Collection[str], clusters: Collection[str]) -> None:
    """Raise UsageError with the target to use if an inventory has clusters only, and the task names none."""
    if nodes or not clusters or spec.needs.nodes or spec.traits.comes_back:
        return
    first = min(clusters)
    there = f"--node {first}" if spec.job else str(replace(spec.needs, nodes=(first,)))
    raise UsageError(f"the inventory has no nodes; specify the cluster: {there}")


def check_for_cluster(spec: TaskSpec, cluster: str, config: SlurmCluster) -> None:
    """Raise UsageError with the option that has no meaning on a cluster, or that it does not support yet."""
    if len(spec.needs.nodes) > 1:
        raise UsageError(f"{cluster} is a cluster, which chooses its nodes itself; specify it alone")
    if spec.image is not None:
        _check_image(spec, cluster, config, "omit --image")
    if spec.terms.preemptible and spec.terms.on_preempt == "requeue" and spec.secret_env:
        raise UsageError(
            f"{cluster}: a job that Slurm starts again has no secrets; with --secret-env, use --on-preempt end, or "
            "omit --preemptible"
        )
    if name := next((name for name in (*spec.env, *spec.secret_env) if name in _OF_THE_SHELL), None):
        raise UsageError(f"{name} cannot be set on {cluster}: its shell keeps that for itself; use another name")
    unsupported = {
        "GPU numbers": bool(spec.needs.indices),
        "--container": spec.container is not None,
        "--nodes in a workflow": spec.gang is not None,
        "--launcher mpirun": spec.multinode is not None and spec.multinode.launcher == "mpirun",
        "--on": bool(spec.needs.on),
        "--policy": spec.needs.policy is not None,
        "--shm-size": spec.shm_size is not None,
        "--network": spec.network is not None,
        "a NUMA node": spec.needs.numa is not None,
        "artifacts": spec.job is not None and bool(spec.job.artifacts),
        "--mount without --image": bool(spec.mounts) and spec.image is None,
        "--volume": bool(spec.volumes),
        "--gpu-share": spec.needs.gpu_share > 1,
        "--share": spec.share,
        "--min-run": spec.terms.min_run is not None,
        "--privileged": spec.privileged,
        "--user": spec.user is not None,
        "a VPS": spec.traits.comes_back,
    }
    if wrong := next((option for option, given in unsupported.items() if given), None):
        hint = _INSTEAD.get(wrong, "omit it")
        raise UsageError(f"{cluster} is a Slurm cluster, where {wrong} cannot be used; {hint}")
    check_job_tree(spec.uploads, spec.workdir)
    if spec.image is not None and not (spec.uploads and place_in_job(spec.workdir)):
        _check_outputs(spec, cluster)


def check_excluded(names: Sequence[str], cluster: str, nodes: Sequence[ClusterNode]) -> None:
    """Raise UsageError for a name that is none of the compute nodes, as far as these are known."""
    known = {node.name for node in nodes}
    for name in names:
        if not NODE_NAME.fullmatch(name) or (known and name not in known):
            hint = nearest(name, known) or f"; to list them, run: agentless nodes {cluster}"
            raise UsageError(f"--exclude {name[:64]!r}: {cluster} has no such node{hint}")


def check_for_overflow(spec: TaskSpec, cluster: str, config: SlurmCluster) -> None:
    """Raise UsageError with the reason why a task that is made for nodes cannot go to this cluster."""
    if spec.needs.nodes:
        raise UsageError(f"the task names its node, {' or '.join(spec.needs.nodes)}; omit that, or --overflow")
    if spec.job and (spec.job.artifacts or spec.terms.requires):
        raise UsageError("a job with artifacts, or one that requires other jobs, runs on nodes; omit --overflow")
    stays = {
        "--nodes": spec.gang is not None,
        "--max-parallel": spec.terms.max_parallel is not None,
        "--no-queue" if spec.terms.wait_for == 0 else "--wait-for": spec.terms.wait_for is not None,
    }
    if option := next((option for option, given in stays.items() if given), None):
        raise UsageError(f"a task with {option} stays on nodes; omit that, or --overflow")
    if spec.image is not None:
        _check_image(spec, cluster, config, "use --container NULL for a task without an image")
    check_for_cluster(spec.on_cluster(cluster), cluster, config)


def _check_image(spec: TaskSpec, cluster: str, config: SlurmCluster, instead: str) -> None:
    if config.container == "none":
        raise UsageError(
            f"{cluster} runs no images; if it has pyxis or apptainer, set container: of {cluster} in the inventory, or "
            f"{instead}"
        )
    if odd := next((mount for mount in spec.mounts if "," in str(mount)), None):
        raise UsageError(f"--mount {odd}: {config.container} takes no path with a comma; use another one")


def _check_outputs(spec: TaskSpec, cluster: str) -> None:
    """Check outputs of a task that starts in its image, of which nothing is left."""
    if inside := next((each.path for each in spec.outputs if not posixpath.isabs(each.path)), None):
        raise UsageError(f"--output {inside}: with --image on {cluster}, use an absolute path on a shared disk")
