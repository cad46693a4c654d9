"""Names of GPU types for Slurm.

Where Slurm finds GPUs by itself, the type must be a part of the name that it makes: the driver's in lower case, with _
for blanks. Types here are such parts, as far as two models of a cluster do not get the same one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from agentless.rules.slurm.lines import word
from agentless.rules.slurm.machine import Machine, SlurmGpu

_MAKERS = re.compile(r"^(?:nvidia|amd|tesla|geforce|quadro|instinct|radeon|pro|graphics)_")
Types = Mapping[tuple[str, str], str]
"""The types of GPUs, by node and number."""
_COUNT = re.compile(r"[0-9]+[kmgtp]?")
"""What Slurm would read as a number of GPUs."""


def types_of(machines: Sequence[Machine]) -> Types:
    """The type of each GPU of a cluster."""
    models = defaultdict[str, set[str]](set)
    for machine in machines:
        for gpu in machine.gpus:
            models[_short(gpu.model)].add(gpu.model)
    return {
        (machine.name, gpu.number): _type(gpu, is_free=not machine.automatic and len(models[_short(gpu.model)]) > 1)
        for machine in machines
        for gpu in machine.gpus
    }


def _type(gpu: SlurmGpu, *, is_free: bool) -> str:
    """The type; the whole name of the model if it `is_free` and its part would not tell it from others."""
    if gpu.profile:
        return word(gpu.profile, "a-z0-9_.", "part")
    return word(_model(gpu.model), otherwise="gpu") if is_free else _short(gpu.model)


def _short(model: str) -> str:
    """`NVIDIA A100-SXM4-40GB` is `a100`, `NVIDIA GeForce RTX 3090` is `rtx_3090`."""
    kind = word(re.split(r"[^a-z0-9_]", _model(model))[0], otherwise="gpu")
    return f"gpu_{kind}" if _COUNT.fullmatch(kind) else kind


def _model(model: str) -> str:
    name = model.lower().replace(" ", "_")
    while shorter := _MAKERS.match(name):
        name = name[shorter.end() :]
    return name


def gres_of(machine: Machine, types: Types) -> str:
    """The GPUs of a node by type: `gpu:a100:2,gpu:t4:1`."""
    counts = Counter(types[machine.name, gpu.number] for gpu in machine.gpus)
    return ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())
