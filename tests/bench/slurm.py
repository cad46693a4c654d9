"""Jobs of a trace through a real Slurm whose time passes faster: see `tests/lab/slurm.py`."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.outcomes import TRIALS, Delays, Outcome, Run, delays_of
from tests.bench.workload import DAY, Job
from tests.lab.slurm import CORES_PER_GPU, Slurm

PARTITIONS = {
    "main": "Default=YES PriorityTier=2 PreemptMode=OFF MaxTime=UNLIMITED",
    "lent": "PriorityTier=1 PreemptMode=REQUEUE MaxTime=UNLIMITED",
}
_WINDOW = round(6 * DAY / 60)
"""Minutes: no limit is longer, and the manual advises a window that is at least as long."""
SCHEDULER = {
    "bf_continue": "",
    "bf_window": _WINDOW,
    "bf_resolution": 300,
    "bf_max_job_test": 1000,
    "default_queue_depth": 1000,
    "preempt_youngest_first": "",
    # A second of these is a millisecond here: Slurm's own bounds for its thinking would cut it short.
    "bf_max_time": 3600,
    "bf_yield_interval": 10_000_000,
    "max_sched_time": 3600,
}
SETTINGS = {
    "SchedulerParameters": ",".join(f"{key}={value}" if value else key for key, value in SCHEDULER.items()),
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "OverTimeLimit": "UNLIMITED",  # a start takes the longer, the faster time passes
    "MaxJobCount": "20000",
}
_STATES = {"COMPLETED", "PREEMPTED"}
_FIELD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True)
class Record:
    """What Slurm says of a run. Times are Slurm's, in Unix seconds; `submitted` is new after each requeue."""

    name: str
    state: str
    submitted: float
    began: float
    ended: float


def through_slurm(wanted: Sequence[Job], nodes: Sequence[int], speed: float) -> tuple[list[Outcome], Delays]:
    """All jobs to their end on nodes of so many GPUs. Times of the jobs are those of the trace."""
    names = {f"node{number}": gpus for number, gpus in enumerate(nodes, 1)}
    with (
        tempfile.TemporaryDirectory(prefix="agl-slurm-") as folder,
        Slurm(Path(folder), names, PARTITIONS, SETTINGS, speed) as slurm,
    ):
        free = [Job(-1 - number, 0, 1, 0, 3600) for number in range(TRIALS)]
        for number, job in enumerate(free, 1):
            slurm.run("sbatch", *arguments(job, speed))
            _wait_for(slurm, number)
        trials = read(slurm.completed.read_text())
        _feed(slurm, wanted, speed)
        look = scheduling(slurm.run("sdiag"))  # now, with jobs that wait: Slurm forgets this at midnight
        _wait_for(slurm, len(trials) + len(wanted))
        found = outcomes(wanted, read(slurm.completed.read_text())[len(trials) :])
    return found, delays_of(outcomes(free, trials), found, look)


def arguments(job: Job, speed: float) -> list[str]:
    """What `sbatch` is given for a job. Slurm counts limits in minutes."""
    return [
        f"--job-name={job.number}",
        f"--partition={'lent' if job.preemptible else 'main'}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={job.per_node}",
        f"--cpus-per-task={CORES_PER_GPU * job.per_node}",
        f"--time={int(-(-job.limit // 60))}",
        "--output=/dev/null",
        "--chdir=/",
        f"--wrap=exec sleep {job.takes / speed:.4f}",
    ]


def read(text: str) -> list[Record]:
    """The lines of Slurm's plugin jobcomp/filetxt."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        times = [_seconds(fields[key]) for key in ("SubmitTime", "StartTime", "EndTime")]
        found.append(Record(fields["Name"], fields["JobState"], *times))
    return found


def outcomes(wanted: Sequence[Job], records: Sequence[Record]) -> list[Outcome]:
    """By the time of the trace. The state of a run that did not end with the job is PREEMPTED."""
    runs: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.ended):
        runs.setdefault(record.name, []).append(record)
    first = runs[str(wanted[0].number)][0].submitted - wanted[0].arrives
    return [
        Outcome(
            job,
            runs[str(job.number)][0].submitted - first,
            tuple(
                Run(run.began - first, run.ended - first, job.gpus, run.state == "PREEMPTED")
                for run in runs[str(job.number)]
            ),
        )
        for job in wanted
    ]


def scheduling(sdiag: str) -> str:
    """How long a look at the queue took, from `sdiag`."""
    part, found = "main", dict[str, str]()
    for line in sdiag.splitlines():
        part = "backfill" if line.startswith("Backfilling stats") else part
        if mean := re.match(r"\s+Mean cycle:\s+(\d+)", line):
            found[part] = mean[1]
    return ", ".join(f"{part} {int(micros) / 1e6:.1f} s" for part, micros in found.items())


def _feed(slurm: Slurm, wanted: Sequence[Job], speed: float) -> None:
    began = time.monotonic()
    for job in wanted:
        time.sleep(max(0.0, began + job.arrives / speed - time.monotonic()))
        slurm.run("sbatch", *arguments(job, speed))


def _wait_for(slurm: Slurm, completed: int) -> None:
    states = list[str]()
    while states.count("COMPLETED") < completed:
        time.sleep(0.05)
        states = re.findall(r"JobState=(\w+)", slurm.completed.read_text()) if slurm.completed.exists() else []
        if other := set(states) - _STATES:
            raise RuntimeError(f"a job has ended as {', '.join(other)}")


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).replace(tzinfo=UTC).timestamp()
