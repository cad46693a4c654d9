"""Jobs as a public trace of a GPU cluster has them: drawn from its published figures, by a seed. It is not the trace.

philly   Microsoft's Philly cluster, 2017 (Jeon et al., USENIX ATC '19; github.com/msr-fiddle/philly-traces: 117,325
         jobs from 2017-08-07 to 2017-12-22). GPUs and durations as the generator of Gavel draws them "from the Philly
         distribution" (Narayanan et al., OSDI '20; github.com/stanford-futuredata/gavel, `_generate_scale_factor` and
         `_generate_duration`): 70 % of the jobs want 1 GPU, 10 % 2, 15 % 4, 5 % 8; four in five take 10^U(1.5, 3)
         minutes, the others 10^U(3, 4).
helios   SenseTime's Helios, April to September 2020 (Hu et al., SC '21; github.com/S-Lab-System-Group/HeliosArtifact,
         `helios_cluster_summary.csv`): the median of 1,580,464 GPU jobs took 206 s, their mean 6,652 s. Drawn as the
         lognormal distribution that has this median and this mean. Its larger jobs
         span nodes, which is not drawn: GPUs are as above.

Ours, and not from a trace: arrivals are a Poisson process whose rate swings by half over the day, as both papers
describe it without a figure; the declared limit is the duration times U(1, 3), as users overestimate; no job is longer
than two days, for otherwise the few longest of a sample of thousands decide all figures. Which jobs are preemptible is
drawn, too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

DAY = 86_400.0
LONGEST = 2 * DAY
SWING = 0.5
_GPUS, _WEIGHTS = (1, 2, 4, 8), (70, 10, 15, 5)
_MEDIAN, _MEAN = 206.0, 6651.7


@dataclass(frozen=True, slots=True)
class Job:
    """Times in seconds; `limit` is what its owner says it takes at most. Its GPUs are spread evenly over its nodes."""

    number: int
    arrives: float
    gpus: int
    takes: float
    limit: float
    nodes: int = 1
    preemptible: bool = False

    @property
    def per_node(self) -> int:
        return self.gpus // self.nodes

    @property
    def work(self) -> float:
        """Seconds times GPUs."""
        return self.gpus * self.takes


def jobs(shape: str, seed: int, count: int, gpus: int, load: float) -> list[Job]:
    """So many jobs, arriving as fast as they use `load` of all the GPUs on average if all of them could be used."""
    draw = random.Random(seed)
    sizes = [draw.choices(_GPUS, _WEIGHTS)[0] for _ in range(count)]
    takes = [max(1.0, min(LONGEST, SHAPES[shape](draw))) for _ in range(count)]
    limits = [each * draw.uniform(1, 3) for each in takes]
    # What was drawn decides the rate, so that the load is what it says also for a short, heavy-tailed sample.
    work = sum(size * each for size, each in zip(sizes, takes, strict=True))
    arrivals = _arrivals(draw, count / (work / gpus / load))
    return [Job(number, *each) for number, each in enumerate(zip(arrivals, sizes, takes, limits, strict=False))]


def spanning(drawn: Sequence[Job], node: int) -> list[Job]:
    """The same jobs on nodes of so many GPUs: whoever wants more than one has spans nodes."""
    return [replace(job, nodes=-(-job.gpus // node)) for job in drawn]


def lending(drawn: Sequence[Job], seed: int, share: float) -> list[Job]:
    """The same jobs, of which some, with at least this share of the work, are preemptible: none that spans nodes."""
    able, work = [job for job in drawn if job.nodes == 1], 0.0
    order = random.Random(seed).sample(able, len(able))
    enough = share * sum(job.work for job in drawn)
    lent = set()
    for job in order:
        if work >= enough:
            break
        lent.add(job.number)
        work += job.work
    return [replace(job, preemptible=job.number in lent) for job in drawn]


def _arrivals(draw: random.Random, rate: float) -> Iterator[float]:
    """Times of a Poisson process of a rate that swings over the day, by thinning."""
    moment = 0.0
    while True:
        moment += draw.expovariate(rate * (1 + SWING))
        if draw.random() * (1 + SWING) < 1 + SWING * math.sin(2 * math.pi * moment / DAY):
            yield moment


def _philly(draw: random.Random) -> float:
    return 60 * 10 ** (draw.uniform(1.5, 3) if draw.random() < 0.8 else draw.uniform(3, 4))


def _helios(draw: random.Random) -> float:
    return draw.lognormvariate(math.log(_MEDIAN), math.sqrt(2 * math.log(_MEAN / _MEDIAN)))


SHAPES: dict[str, Callable[[random.Random], float]] = {"philly": _philly, "helios": _helios}
