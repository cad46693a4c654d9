"""Jobs of a trace through a controller, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from agentless.client.client import Client
from tests.bench.fleets import request
from tests.bench.outcomes import Outcome, Run
from tests.bench.workload import Job


def send(client: Client, wanted: Sequence[Job]) -> list[Outcome]:
    """Submit each when it arrives, and wait for the end of all."""
    ids: dict[int, list[str]] = {job.number: [] for job in wanted}

    def submit(job: Job) -> None:
        ids[job.number] += [start["task"]["id"] for start in client.post("/v1/tasks", body(job))]

    began, threads = time.monotonic(), []
    for job in wanted:
        time.sleep(max(0.0, began + job.arrives - time.monotonic()))
        threads.append(threading.Thread(target=submit, args=[job]))
        threads[-1].start()
    for thread in threads:
        thread.join()
    found = {job.number: [list(_tries(client, task)) for task in ids[job.number]] for job in wanted}
    first = min(_seconds(tries[0]["created_at"]) for each in found.values() for tries in each) - wanted[0].arrives
    return [_outcome(job, found[job.number], first) for job in wanted]


def body(job: Job) -> dict[str, Any]:
    """What a controller is sent for a job."""
    found: dict[str, Any] = request("node1", "sleep", f"{job.takes:.3f}")
    found["targets"] = [f"{job.per_node}x"]
    found["spec"]["terms"] = {"time_limit": job.limit, "preemptible": job.preemptible}
    found["spec"]["stop_grace"] = 0.0  # in proportion: as `sleep` in a container outlives SIGTERM, Slurm's does not
    if job.nodes > 1:
        found["spec"]["gang"] = {"size": job.nodes}
    return found


def _tries(client: Client, first: str) -> Iterator[Mapping[str, Any]]:
    """Those that were preempted, and the one that was the last."""
    last = client.wait(first)
    # A limit is never shorter than the job, but the faster time passes, the less it is longer than a start takes.
    assert last["state"] in ("completed", "timeout"), (last["state"], last["reason"])
    for number in range(1, last["attempt"]):
        yield client.get(f"/v1/tasks/{first}-{number}")
    yield last


def _outcome(job: Job, members: Sequence[Sequence[Mapping[str, Any]]], first: float) -> Outcome:
    runs = [
        Run(
            _seconds(each["started_at"]) - first,
            _seconds(each["ended_at"]) - first,
            job.per_node,
            each is not tries[-1],
        )
        for tries in members
        for each in tries
        if each["started_at"]
    ]
    return Outcome(job, min(_seconds(tries[0]["created_at"]) for tries in members) - first, tuple(runs))


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
