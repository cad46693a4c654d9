"""What became of the jobs of a replay, whoever ran them, and the figures of it."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.bench.workload import Job

TRIALS = 20


@dataclass(frozen=True, slots=True)
class Run:
    """GPUs held by a job, on one node or on all of its nodes, in seconds of the trace. `lost`: it was preempted."""

    began: float
    ended: float
    gpus: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job, when it came, and all its runs."""

    job: Job
    arrived: float
    runs: tuple[Run, ...]

    @property
    def waited(self) -> float:
        """Until the start of the run that ends with the job, on the last of its nodes."""
        return max(run.began for run in self.runs if not run.lost) - self.arrived


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds."""

    mean: float
    median: float
    p90: float


@dataclass(frozen=True, slots=True)
class Figures:
    """`used` is the share of all GPUs that are held while jobs arrive, `lost` the share of it that was preempted."""

    used: float
    lost: float
    firm: Waits
    preemptible: Waits | None


@dataclass(frozen=True, slots=True)
class Delays:
    """Medians, in seconds of the trace, which the speed makes longer than they are.

    `start` is from the submission to the start on a free cluster, `held` how much longer a job holds its GPUs than it
    sleeps, `next_start` from the end of a job to the start of one that has waited.
    """

    start: float
    held: float
    next_start: float
    look: str = ""


def delays_of(trials: Sequence[Outcome], outcomes: Sequence[Outcome], look: str = "") -> Delays:
    """Each of the trials, of jobs that take no time, had the cluster for itself."""
    held = [run.ended - run.began for each in trials for run in each.runs]
    return Delays(
        statistics.median(each.waited for each in trials), statistics.median(held), _next_start(outcomes), look
    )


def _next_start(outcomes: Sequence[Outcome]) -> float:
    ends = sorted(run.ended for each in outcomes for run in each.runs)
    gaps = list[float]()
    for each in outcomes:
        began = each.arrived + each.waited
        before = bisect_right(ends, began)
        if before and ends[before - 1] > each.arrived:
            gaps.append(began - ends[before - 1])
    return statistics.median(gaps) if gaps else 0.0


def judge(outcomes: Sequence[Outcome], gpus: int) -> Figures:
    """The first tenth of the arrivals fills the cluster, and after the last one it empties: neither counts as use."""
    last = max(each.arrived for each in outcomes)
    begin = 0.1 * last
    held = lost = 0.0
    for run in (run for each in outcomes for run in each.runs):
        took = run.gpus * max(0.0, min(run.ended, last) - max(run.began, begin))
        held += took
        lost += took * run.lost
    preemptible = [each.waited for each in outcomes if each.job.preemptible]
    return Figures(
        held / (gpus * (last - begin)),
        lost / held,
        _waits([each.waited for each in outcomes if not each.job.preemptible]),
        _waits(preemptible) if preemptible else None,
    )


def _waits(values: Collection[float]) -> Waits:
    return Waits(statistics.mean(values), statistics.median(values), sorted(values)[int(0.9 * len(values))])
