"""`gres.conf`: which device files are GPUs, and what is near them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentless.rules.slurm.lines import comment, entry
from agentless.rules.slurm.machine import Machine
from agentless.rules.slurm.types import Types
from agentless.rules.slurm.vendors import VENDORS


def gres_conf(machines: Sequence[tuple[str, Machine]], types: Types) -> Iterator[str]:
    """The lines for these nodes, by their names in Slurm."""
    for name, machine in machines:
        if machine.gpus or machine.left_out:
            yield ""
        for words in machine.left_out:
            yield comment(f"{machine.name}, not included: {words}")
        if why := machine.automatic:
            yield from _automatic(name, machine, why)
            continue
        if any(gpu.guessed for gpu in machine.gpus):
            yield comment(
                f"{machine.name}: device files by the numbers in nvidia-smi, since the driver does not list them."
            )
        for gpu in machine.gpus:
            yield entry(
                NodeName=name,
                Name="gpu",
                Type=types[machine.name, gpu.number],
                File=gpu.file,
                Cores=gpu.cores,
                Links=",".join(map(str, gpu.links)),
                Flags=VENDORS[gpu.vendor].flag,
            )


def _automatic(name: str, machine: Machine, why: str) -> Iterator[str]:
    vendors = sorted({gpu.vendor for gpu in machine.gpus})
    yield comment(f"{machine.name}: AutoDetect, since {why}.")
    yield comment(f"slurmd there needs to be built with {' and '.join(VENDORS[each].library for each in vendors)}.")
    for vendor in vendors:
        yield entry(NodeName=name, AutoDetect=VENDORS[vendor].library)
