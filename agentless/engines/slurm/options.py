"""What a task needs, as options of `sbatch` and `srun`."""

from __future__ import annotations

import math

from agentless.engines.slurm.container import pyxis_options
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.tasks.spec import TaskSpec

MOST_NICE = 2147483645


def sbatch_options(spec: TaskSpec, cluster: SlurmCluster) -> list[str]:
    """The options of the job of a task, except for what names it. Memory is per node, time in minutes, rounded up."""
    needs = spec.needs
    given: dict[str, object] = {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "open-mode": "append",
        "gres": _gres(needs.gpus, needs.gpu_types) if needs.gpus else None,
        "cpus-per-task": math.ceil(spec.cores) if spec.cores else None,
        "mem": f"{math.ceil(spec.memory / (1 << 20))}M" if spec.memory else None,
        "time": math.ceil(spec.terms.time_limit / 60) if spec.terms.time_limit else None,
        "nice": -spec.terms.priority if spec.terms.priority else None,
    }
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return [*words, "--no-requeue", *["--exclusive"] * needs.exclusive]


def srun_options(spec: TaskSpec, cluster: SlurmCluster) -> list[str]:
    """The options of the only step of a job. From Slurm 22.05 on, srun has to be told the cores once more."""
    cores = [f"--cpus-per-task={math.ceil(spec.cores)}"] if spec.cores else []
    container = pyxis_options(spec) if spec.image and cluster.container == "pyxis" else []
    return ["--ntasks=1", "--nodes=1", *cores, "--kill-on-bad-exit=1", *container]


def _gres(gpus: int, types: tuple[str, ...]) -> str:
    return f"gpu:{types[0].lower()}:{gpus}" if types else f"gpu:{gpus}"
