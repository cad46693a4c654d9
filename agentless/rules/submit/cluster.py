"""What a task on a cluster with a queue of its own may ask for."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from agentless.errors import UsageError
from agentless.model.tasks.spec import TaskSpec


def joined(specs: Sequence[TaskSpec], clusters: Container[str]) -> tuple[TaskSpec, ...]:
    """Specs by target, where a cluster and the GPUs behind it are one target: `hpc 2xA100`."""
    found, cluster = list[TaskSpec](), None
    for spec in specs:
        if cluster and not spec.needs.nodes:
            found[-1] = replace(spec, needs=replace(spec.needs, nodes=(cluster,)))
            cluster = None
            continue
        found.append(spec)
        cluster = spec.needs.node if spec.needs.node in clusters and not spec.needs.indices else None
    return tuple(found)


def check_for_cluster(spec: TaskSpec, cluster: str) -> None:
    """Raise UsageError with the option that has no meaning on a cluster, or that it does not support yet."""
    if len(spec.needs.nodes) > 1:
        raise UsageError(f"{cluster} is a cluster, which chooses its nodes itself; specify it alone")
    unsupported = {
        f"{cluster}::{','.join(map(str, spec.needs.indices))}": bool(spec.needs.indices),
        "--image": spec.image is not None,
        "--container": spec.container is not None,
        "--nodes": spec.gang_size > 1,
        "--upload": bool(spec.uploads),
        "--output": bool(spec.outputs),
        "--mount": bool(spec.mounts),
        "--volume": bool(spec.volumes),
        "--gpu-memory": spec.needs.gpu_memory is not None,
        "--gpu-share": spec.needs.gpu_share > 1,
        "--share": spec.share,
        "--preemptible": spec.terms.preemptible,
        "--privileged": spec.privileged,
        "--user": spec.user is not None,
        "a VPS": spec.traits.comes_back,
    }
    if wrong := next((option for option, given in unsupported.items() if given), None):
        raise UsageError(f"{cluster} is a Slurm cluster, on which agentless does not support {wrong} yet; omit it")
