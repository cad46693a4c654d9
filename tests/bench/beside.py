"""`python -m tests.bench.replay --slurm`: the same jobs through agentless and through a real Slurm, as root.

Two tables. In the first, every job fits on a node and none is preemptible. In the second, nodes have half as many GPUs,
so that the largest jobs of the trace span two, and a tenth of the work is preemptible. Both in virtual time
(`simulation.py`) and in real time, in which a day of the trace takes `86,400 / speed` seconds: jobs are `sleep`, and
Slurm's daemons have a clock that is as fast as the jobs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.bench.fleets import controller, simulated_env, simulated_nodes
from tests.bench.outcomes import TRIALS, Delays, Figures, Outcome, Run, Waits, delays_of, judge
from tests.bench.sending import send
from tests.bench.simulation import Agentless, Fifo, run
from tests.bench.slurm import through_slurm
from tests.bench.workload import SHAPES, Job, jobs, lending, spanning
from tests.lab.slurm import missing

WHOLE, HALVES = (8,) * 8, (4,) * 16
SHARE = 0.1
_BLANK = "– | – | –"


def main(argv: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.replay --slurm", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="philly")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--speed", type=float, default=1200.0, help="seconds of the trace in a second")
    parser.add_argument("--only", choices=("plain", "gangs"), help="one of the tables")
    given = parser.parse_args(argv)
    if lacking := missing():
        sys.exit(f"replay beside Slurm: {'; '.join(lacking)}")
    # Before the machine's other work, which would be as fast and so last as long as a job.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    drawn = jobs(given.shape, given.seed, given.jobs, sum(WHOLE), given.load)
    about = f"{given.jobs} {given.shape} jobs, seed {given.seed}, {given.load:.0%}, {given.speed:,.0f} times as fast"
    if given.only != "gangs":
        _table(f"{about}; 8 nodes of 8 GPUs", drawn, WHOLE, given.speed)
    if given.only != "plain":
        mixed = lending(spanning(drawn, HALVES[0]), given.seed, SHARE)
        _table(f"{about}; 16 nodes of 4 GPUs, {_mixture(mixed)}", mixed, HALVES, given.speed)


def _table(about: str, wanted: Sequence[Job], nodes: Sequence[int], speed: float) -> None:
    print(f"{about}\n")
    print("| | GPUs in use | Of it preempted | Mean wait | Median | 90 % | Preemptible: mean | Median | 90 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    _row("first come, first served, virtual time", _simulated(wanted, Fifo(nodes)), nodes)
    _row("agentless, virtual time", _simulated(wanted, Agentless(nodes)), nodes)
    ours, our_delays = _controlled(wanted, nodes, speed)
    _row("agentless, a controller and simulated nodes", ours, nodes)
    theirs, their_delays = through_slurm(wanted, nodes, speed)
    _row("Slurm", theirs, nodes)
    print(f"\nMedians, in seconds of the trace ({1000 / speed:.2f} ms each):\n")
    print(f"- agentless: {_told(our_delays, ours)}\n- Slurm: {_told(their_delays, theirs)}")
    print(f"\nLoad of the machine: {os.getloadavg()[0]:.1f}.\n", flush=True)


def _row(name: str, outcomes: Sequence[Outcome], nodes: Sequence[int]) -> None:
    print(f"| {name} | {_cells(judge(outcomes, sum(nodes)))} |", flush=True)


def _cells(figures: Figures) -> str:
    lent = _waits(figures.preemptible) if figures.preemptible else _BLANK
    return f"{figures.used:.1%} | {figures.lost:.1%} | {_waits(figures.firm)} | {lent}"


def _waits(waits: Waits) -> str:
    return " | ".join(f"{each / 60:.0f} min" for each in (waits.mean, waits.median, waits.p90))


def _mixture(wanted: Sequence[Job]) -> str:
    gangs, lent = [job for job in wanted if job.nodes > 1], [job for job in wanted if job.preemptible]
    share = sum(job.work for job in lent) / sum(job.work for job in wanted)
    return f"{len(gangs)} jobs on 2 nodes, {len(lent)} preemptible ({share:.0%} of the work)"


def _told(delays: Delays, ran: Sequence[Outcome]) -> str:
    late = max(each.arrived - each.job.arrives for each in ran)
    return (
        f"a start on a free cluster {delays.start:.0f} s after the submission, GPUs held {delays.held:.0f} s longer "
        f"than the job sleeps, {delays.next_start:.0f} s from an end to the start of one that waited; "
        f"the latest submission {late:.0f} s late{f'; a look at the queue {delays.look}' if delays.look else ''}"
    )


# ------------------------------------------------------------------------------------------------------ agentless


def _simulated(wanted: Sequence[Job], scheduler: Fifo | Agentless) -> list[Outcome]:
    runs: dict[int, list[Run]] = {job.number: [] for job in wanted}
    for ran in run(wanted, scheduler):
        runs[ran.job.number].append(Run(ran.began, ran.ended, ran.job.gpus, ran.gave_way is not None))
    return [Outcome(job, job.arrives, tuple(runs[job.number])) for job in wanted]


def _controlled(wanted: Sequence[Job], nodes: Sequence[int], speed: float) -> tuple[list[Outcome], Delays]:
    faster = [
        replace(job, arrives=job.arrives / speed, takes=job.takes / speed, limit=job.limit / speed) for job in wanted
    ]
    trial = Job(0, 0, 1, 0, 60)
    with simulated_nodes(len(nodes), nodes[0], taken=1) as root, controller(simulated_env(root)) as client:
        trials = [_slower(send(client, [trial])[0], trial, speed) for _ in range(TRIALS)]
        sent = send(client, faster)
    ran = [_slower(each, job, speed) for each, job in zip(sent, wanted, strict=True)]
    return ran, delays_of(trials, ran)


def _slower(outcome: Outcome, job: Job, speed: float) -> Outcome:
    runs = tuple(replace(run, began=run.began * speed, ended=run.ended * speed) for run in outcome.runs)
    return Outcome(job, outcome.arrived * speed, runs)
