"""`python -m tests.bench.replay`: the queue against plain first come, first served, on the jobs of `workload.py`.

Prints the tables of docs/performance.md and draws docs/pictures/replay.svg. Virtual time, see `simulation.py`; with
`--real` it also sends 150 of the jobs, 3,600 times as fast, through a controller to simulated nodes, and compares the
waits. `--slurm` is `beside.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agentless.controller.scheduling.queue import POLICIES
from tests.bench import beside
from tests.bench.fleets import controller, simulated_env, simulated_nodes
from tests.bench.plot import draw
from tests.bench.sending import send
from tests.bench.simulation import Agentless, Fifo, Ran, run
from tests.bench.workload import SHAPES, jobs

CLUSTER = (8,) * 8
JOBS, SEEDS = 1000, (1, 2, 3)
LOADS = (0.7, 0.9, 1.1)
HOUR = 3600.0
PLOT = Path(__file__).parents[2] / "docs" / "pictures" / "replay.svg"
FIFO, LIMITS, NO_LIMITS = "first come, first served", "agentless", "agentless, no limits declared"
SCHEDULERS: dict[str, Callable[[], Fifo | Agentless]] = {
    FIFO: lambda: Fifo(CLUSTER),
    NO_LIMITS: lambda: Agentless(CLUSTER, limits=False),
    LIMITS: lambda: Agentless(CLUSTER),
}
REAL_JOBS, REAL_LOAD, FASTER = 150, 0.9, 3600.0
REAL_CLUSTER = (8, 7, 8)
"""Of the simulated nodes, somebody else is on the last GPU of the second one."""


@dataclass(frozen=True, slots=True)
class Figures:
    """`used` is the share of all GPUs that run something while jobs arrive; times in seconds."""

    used: float
    mean: float
    p95: float
    makespan: float


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.replay", description="Replay a workload.", allow_abbrev=False
    )
    parser.add_argument("--real", action="store_true", help="also through a controller, in real time: five minutes")
    parser.add_argument("--only-real", action="store_true", help="nothing but that")
    parser.add_argument("--slurm", action="store_true", help="instead, beside a real Slurm: see beside.py")
    given, more = parser.parse_known_args()
    if given.slurm:
        return beside.main(more)
    if more:
        parser.error(f"unknown: {' '.join(more)}")
    if not given.only_real:
        _simulate()
    if given.real or given.only_real:
        print(_real())
    return None


def _simulate() -> None:
    found = {
        (shape, load): {name: _figures(make, shape, load) for name, make in SCHEDULERS.items()}
        for shape in SHAPES
        for load in LOADS
    }
    print("| Jobs, load | Scheduler | GPUs in use | Mean wait | 95 % wait less than | All done after |")
    print("|---|---|---|---|---|---|")
    for (shape, load), rows in found.items():
        for name, figures in rows.items():
            print(f"| {shape}, {load:.0%} | {name} | {_cells(figures)} |")
    print()
    print("| Policy (philly, 90 %) | GPUs in use | Mean wait | 95 % wait less than | All done after |")
    print("|---|---|---|---|---|")
    for policy in POLICIES:
        make = partial(Agentless, CLUSTER, policy=policy)
        print(f"| {policy} | {_cells(_figures(make, 'philly', 0.9))} |")
    panels: dict[str, Callable[[Figures], float]] = {
        "GPUs in use, %": lambda figures: 100 * figures.used,
        "mean wait, hours": lambda figures: figures.mean / HOUR,
        "95 % wait less than, hours": lambda figures: figures.p95 / HOUR,
    }
    bars = {
        (shape, title): {f"load {load:.0%}": [value(f) for f in found[shape, load].values()] for load in LOADS}
        for shape in SHAPES
        for title, value in panels.items()
    }
    PLOT.write_text(draw(bars, list(SCHEDULERS)), encoding="utf-8")


def _cells(figures: Figures) -> str:
    return f"{figures.used:.1%} | {_time(figures.mean)} | {_time(figures.p95)} | {figures.makespan / 86_400:.1f} d"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"


def _figures(make: Callable[[], Fifo | Agentless], shape: str, load: float) -> Figures:
    """The means over the seeds."""
    print(f"{shape} {load:.0%} …", file=sys.stderr, flush=True)
    each = [_judge(run(jobs(shape, seed, JOBS, sum(CLUSTER), load), make()), sum(CLUSTER)) for seed in SEEDS]
    columns = zip(*((f.used, f.mean, f.p95, f.makespan) for f in each), strict=True)
    return Figures(*(statistics.mean(column) for column in columns))


def _judge(ran: Sequence[Ran], gpus: int) -> Figures:
    """The first tenth of the arrivals fills the cluster, and after the last one it empties: neither counts as use."""
    last = max(each.job.arrives for each in ran)
    begin, waits = 0.1 * last, [each.waited for each in ran]
    busy = sum(each.job.gpus * max(0.0, min(each.ended, last) - max(each.began, begin)) for each in ran)
    made = max(each.ended for each in ran)
    return Figures(busy / (gpus * (last - begin)), statistics.mean(waits), _p95(waits), made)


def _p95(values: Collection[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


# ------------------------------------------------------------------------------------------------ through a controller


def _real() -> str:
    drawn = jobs("philly", 1, REAL_JOBS, sum(REAL_CLUSTER), REAL_LOAD)
    wanted = [
        replace(job, arrives=job.arrives / FASTER, takes=job.takes / FASTER, limit=job.limit / FASTER) for job in drawn
    ]
    simulated = {ran.job.number: ran.waited for ran in run(wanted, Agentless(REAL_CLUSTER))}
    fifo = {ran.job.number: ran.waited for ran in run(wanted, Fifo(REAL_CLUSTER))}
    with simulated_nodes(len(REAL_CLUSTER), 8) as root, controller(simulated_env(root)) as client:
        real = {each.job.number: each.waited for each in send(client, wanted)}
    sides = {
        "first come, first served, simulated": fifo,
        "agentless, simulated": simulated,
        "agentless, a controller and simulated nodes": real,
    }
    lines = [
        f"| {REAL_JOBS} philly jobs, {REAL_LOAD:.0%}, {FASTER:,.0f} times as fast | Mean wait | 95 % wait less than |",
        "|---|---|---|",
        *(
            f"| {name} | {statistics.mean(waits.values()):.1f} s | {_p95(waits.values()):.1f} s |"
            for name, waits in sides.items()
        ),
    ]
    return "\n".join(lines) + f"\n\nLoad of the machine: {os.getloadavg()[0]:.1f}."


if __name__ == "__main__":
    main()
