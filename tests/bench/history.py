"""A submit when 100,000 tasks have ended before, against one when none has."""

from __future__ import annotations

import time
from pathlib import Path

import orjson

from agentless import paths
from agentless.client.client import Client
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Ended, Placement, Task
from agentless.model.tasks.task_id import new_task_id
from agentless.stores.records.history import History
from tests.bench.fleets import controller, forget, request, simulated_env, simulated_nodes
from tests.bench.measure import Row, paired, ratio

ENDED = 100_000
EVENTS = 3
MOST = 1.1


def bench(runs: int) -> list[Row]:
    """Two controllers of one simulated node, whose `docker run` is fast and hides little. Three times as many pairs."""
    with simulated_nodes(1, 2) as root:
        old, new = simulated_env(root, "old"), simulated_env(root, "new")
        _fill(paths.state_dir(old) / "history.sqlite")
        with controller(old) as full, controller(new) as empty:
            what = f"a submit after {ENDED:,} ended tasks : after none"
            return [ratio(what, MOST, paired(lambda: _submit(full), lambda: _submit(empty), 3 * runs))]


def _submit(client: Client) -> float:
    began = time.perf_counter()
    [start] = client.post("/v1/tasks", request("node1::0", "true"))
    seconds = time.perf_counter() - began
    forget(client, start["task"]["id"])
    time.sleep(0.1)  # the other controller looks at what was removed
    return seconds


def _fill(path: Path) -> None:
    """One task every minute until now, each with its events."""
    history, now, last = History(path), time.time(), ""
    for minute in range(ENDED, 0, -1):
        at = now - 60 * minute
        last = new_task_id(at, last)
        placement = Placement("node1", (0,), ("GPU-5d1c9f3e-0000-4000-8000-000000000000",))
        status = Ended("completed", at + 50, 0, None, placement, "0123456789ab" * 5 + "cdef", at)
        spec = TaskSpec(("python", "train.py"), "python:3.12", f"run-{minute % 1000}", needs=parse_target("node1::0"))
        history.add(Task(last, spec, last, "bench@here", at, status))
        for number in range(EVENTS):
            history.record(at, last, orjson.dumps({"kind": "task", "at": at, "event": str(number), "task": last}))
    history.close()
