"""What a task needs, as options of `sbatch` and `srun`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentless.engines.slurm.container import pyxis_options
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import TaskSpec


def sbatch_options(spec: TaskSpec, cluster: SlurmCluster) -> list[str]:
    """The options of the job of a task, except for what names it. Memory is per node, time in minutes, rounded up."""
    needs, nodes = spec.needs, spec.multinode.size if spec.multinode else None
    given: dict[str, object] = {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "nodes": nodes,
        "ntasks-per-node": 1 if nodes else None,
        "exclude": ",".join(needs.exclude) or None,
        "open-mode": "append",
        "gres": _gres(needs.gpus, needs.gpu_types) if needs.gpus else None,
        "cpus-per-task": math.ceil(spec.cores) if spec.cores else None,
        "mem": f"{math.ceil(spec.memory / (1 << 20))}M" if spec.memory else None,
        "time": math.ceil(spec.terms.time_limit / 60) if spec.terms.time_limit else None,
        # Seconds since 1970, which no zone and no change of the clocks can shift.
        "begin": f"uts{math.ceil(spec.terms.start_at)}" if spec.terms.start_at else None,
        "nice": -spec.terms.priority if spec.terms.priority else None,
    }
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    comes_back = spec.terms.preemptible and spec.terms.on_preempt == "requeue"
    return [*words, "--requeue" if comes_back else "--no-requeue", *["--exclusive"] * needs.exclusive]


def dependency_options(after: Sequence[str]) -> list[str]:
    """The options of a job that waits for others; it leaves the queue when it waits in vain."""
    return [f"--dependency={','.join(after)}", "--kill-on-invalid-dep=yes"] if after else []


def srun_options(spec: TaskSpec, cluster: SlurmCluster) -> list[str]:
    """The options of the only step of a job. From Slurm 22.05 on, srun has to be told the cores once more."""
    cores = [f"--cpus-per-task={math.ceil(spec.cores)}"] if spec.cores else []
    container = pyxis_options(spec) if spec.image and cluster.container == "pyxis" else []
    if (nodes := spec.multinode) is None:
        return ["--ntasks=1", "--nodes=1", "--unbuffered", *cores, "--kill-on-bad-exit=1", *container]
    # Each line of the log has its rank, so a part of one waits for the rest. A node that ends without an error ends no
    # other.
    where = [f"--ntasks={nodes.size}", f"--nodes={nodes.size}", "--ntasks-per-node=1", "--label", "--wait=0"]
    return [*where, *cores, f"--kill-on-bad-exit={int(nodes.on_member_failure == 'stop')}", *container]


def _gres(gpus: int, types: tuple[str, ...]) -> str:
    return f"gpu:{types[0]}:{gpus}" if types else f"gpu:{gpus}"
