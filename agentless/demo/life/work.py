"""How a GPU moves under a job: utilization, memory, temperature and power as functions of time.

They are pure, so that a reading is the same whoever asks for it: the stand-in `nvidia-smi`, and the hour before the
start. A job begins with a warm-up, in which data and weights are loaded. Then come steps, interrupted by validation,
with a short stop at its begin for a checkpoint, and now and then by a loader that does not keep up. Memory follows
the job, power the utilization at once, and temperature follows it slowly.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

LONGEST_BEFORE = 160.0
"""Seconds after which a load is not felt in the temperature any more."""
_STEP = 20.0
"""Seconds between two looks back, for the temperature."""
_SLOWNESS = 45.0
"""Seconds in which a GPU comes within a third of its new temperature."""
_WINDOW = 7
"""Seconds that are looked at together for a stall of the loader."""
_COLDEST, _WARMING = 30.0, 46.0
_IDLE_POWER, _LOAD_POWER = 0.13, 0.80
_IDLE_MIB = 4


class Kind(NamedTuple):
    """A kind of job. Percent, shares of a GPU's memory, seconds, and how likely a stall is within `_WINDOW` seconds."""

    steps: float
    swing: float
    memory: float
    warm_up: float
    between: float
    validation: float
    validating: float
    stalls: float


KINDS = {
    "pretrain": Kind(98, 2, 0.78, 25, 240, 20, 62, 0.02),
    "finetune": Kind(89, 7, 0.52, 15, 50, 8, 44, 0.08),
    "eval": Kind(66, 18, 0.24, 6, 24, 6, 9, 0.12),
    "serve": Kind(41, 26, 0.61, 20, 33, 12, 12, 0.0),
    "notebook": Kind(72, 22, 0.21, 3, 34, 23, 1, 0.05),
    "train": Kind(93, 5, 0.47, 12, 75, 11, 48, 0.06),
}
"""By the beginning of a word in the command. `train` stands for all others."""


@dataclass(frozen=True, slots=True)
class Job:
    """What runs on a GPU. GPUs with the same seed move together, as those of one training do."""

    kind: Kind
    seed: int


@dataclass(frozen=True, slots=True)
class Shift:
    """A job's time on a GPU, in Unix seconds."""

    job: Job
    began: float
    ended: float = inf


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU at one moment, by the names of the controller's own readings."""

    utilization_pct: int
    memory_used_mib: int
    temperature_c: int
    power_w: float


def job_of(command: Sequence[str], seed: str) -> Job:
    """What this command is."""
    found = (kind for name, kind in KINDS.items() if any(word.startswith(name) for word in command))
    return Job(next(found, KINDS["train"]), zlib.crc32(seed.encode()))


def reading(shifts: Sequence[Shift], at: float, memory_mib: int, power_limit_w: float) -> Reading:
    """A GPU with this much memory and power, in whose life there were these shifts, in their order."""
    load = _load(shifts, at)
    job = _current(shifts, at)
    share = memory_share(job.job, at - job.began) if job else 0.0
    return Reading(
        round(load),
        max(_IDLE_MIB, round(share * memory_mib)),
        round(_COLDEST + _WARMING * _felt(shifts, at) / 100),
        round(power_limit_w * (_IDLE_POWER + _LOAD_POWER * load / 100), 2),
    )


def utilization(job: Job, since: float) -> float:
    """Percent, so many seconds after its start."""
    kind = job.kind
    if since < kind.warm_up:
        return 2.0 if since < 0.6 * kind.warm_up else 35.0 + 20 * _chance(job.seed, int(since))
    within = (since - kind.warm_up + job.seed % kind.between) % kind.between
    rest = within - (kind.between - kind.validation)
    if rest >= 0:
        return 4.0 if rest < 2 else kind.validating
    if since % _WINDOW < 3 and _chance(job.seed, int(since // _WINDOW), 1) < kind.stalls:
        return 0.3 * kind.steps
    return max(0.0, min(100.0, kind.steps + kind.swing * (_chance(job.seed, int(since)) - 0.6)))


def memory_share(job: Job, since: float) -> float:
    """The share of the memory in use: it fills while a job warms up, and breathes a little afterwards."""
    kind = job.kind
    if since < kind.warm_up:
        return kind.memory * 0.9 * max(0.0, since / kind.warm_up)
    return kind.memory * (1.0 + 0.03 * (_chance(job.seed, int(since // 20)) - 0.5))


def _load(shifts: Sequence[Shift], at: float) -> float:
    shift = _current(shifts, at)
    return utilization(shift.job, at - shift.began) if shift else 0.0


def _felt(shifts: Sequence[Shift], at: float) -> float:
    """The mean utilization of the last minutes; the longer ago, the less it counts."""
    if not shifts or at - shifts[-1].ended > LONGEST_BEFORE:
        return 0.0
    ago = [number * _STEP for number in range(int(LONGEST_BEFORE / _STEP))]
    weights = [exp(-each / _SLOWNESS) for each in ago]
    return sum(w * _load(shifts, at - each) for w, each in zip(weights, ago, strict=True)) / sum(weights)


def _current(shifts: Sequence[Shift], at: float) -> Shift | None:
    return next((shift for shift in reversed(shifts) if shift.began <= at < shift.ended), None)


def _chance(seed: int, number: int, of: int = 0) -> float:
    """A number from 0 to 1 that looks random and is always the same one for the same arguments."""
    mixed = (seed ^ (number * 0x9E3779B1) ^ (of * 0x85EBCA6B)) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) / 0xFFFFFFFF
