"""The start of a gang on eight real nodes, against the slowest of eight single tasks that start there at once.

The eight engines share the cores of this machine, so a task that starts alone has more of it than a member of a gang:
the single tasks are started together, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from agentless.client.client import Client
from tests.bench.fleets import controller, real_env, real_nodes, request
from tests.bench.measure import Row, milliseconds, paired, ratio
from tests.lab import IMAGE, requirements

NODES = tuple(f"node{number}" for number in range(1, 9))
MOST = 1.5
_WHAT = f"the start of a gang on {len(NODES)} real nodes : the slowest of {len(NODES)} single tasks there, at once"


def bench(runs: int) -> list[Row]:
    """From the request to its answer, which comes when all run; all are removed outside the time."""
    if missing := requirements():
        return [Row(_WHAT, f"≤ {MOST:g} ×", "; ".join(missing))]
    with real_nodes(*NODES, gpus=1) as lab, controller(real_env(lab)) as client:
        started = partial(_started, client)
        gang = partial(started, ["1x"], gang={"size": len(NODES)})
        at_once = partial(started, [f"{node}::0" for node in NODES])
        pairs = paired(gang, at_once, max(5, runs // 3))
        alone = max(statistics.median(started([f"{node}::0"]) for _ in range(3)) for node in NODES)
    row = ratio(_WHAT, MOST, pairs)
    words = f"{row.measured}; the slowest of them alone {milliseconds(alone)}"
    return [Row(row.what, row.bound, words, row.passed)]


def _started(client: Client, targets: Sequence[str], **spec: object) -> float:
    body: dict[str, Any] = {**request("node1", "sleep", "600", image=IMAGE), "targets": targets}
    body["spec"].update(spec)
    began = time.perf_counter()
    answers = client.post("/v1/tasks", body)
    seconds = time.perf_counter() - began
    tasks = [answer["task"] for answer in answers]
    assert {task["state"] for task in tasks} == {"running"}, answers
    for task in tasks:
        client.delete(f"/v1/tasks/{task['id']}", force=True)
    time.sleep(1)  # the controller looks at what was removed: not in the other's time
    return seconds
